"""The first catalog"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.create_table(
        "blobs",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_blobs")),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("value", sa.String(length=256), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_meta")),
    )
    op.create_table(
        "mirrors",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("source_set", sa.String(length=64), nullable=False),
        sa.Column("content", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("sources", sa.Integer(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("sidecar_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("used_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mirrors")),
        sa.UniqueConstraint("key", name=op.f("uq_mirrors_key")),
    )
    with op.batch_alter_table("mirrors", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_mirrors_source_set"), ["source_set"], unique=False)

    op.create_table(
        "name_history",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("build", sa.String(length=26), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", "version", name=op.f("pk_name_history")),
    )
    op.create_table(
        "names",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("build", sa.String(length=26), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_names")),
    )
    op.create_table(
        "objects",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_objects")),
        sa.UniqueConstraint("name", name=op.f("uq_objects_name")),
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("work", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    op.create_table(
        "units",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("work", sa.String(length=16), nullable=False),
        sa.Column("build", sa.String(length=26), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(length=128), nullable=True),
        sa.Column("lease_until", sa.Float(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.Column("memory", sa.BigInteger(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_units")),
    )
    with op.batch_alter_table("units", schema=None) as batch_op:
        batch_op.create_index("ix_units_claim", ["state", "priority", "cost"], unique=False)
        batch_op.create_index("ix_units_lease", ["state", "lease_until"], unique=False)

    op.create_table(
        "builds",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("identity", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("submission", sa.String(length=64), nullable=True),
        sa.Column("file", sa.String(length=4096), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("names", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.Column("stages", sa.JSON(), nullable=False),
        sa.Column("plan", sa.String(length=64), nullable=True),
        sa.Column("problems", sa.String(length=64), nullable=True),
        sa.Column("replans", sa.Integer(), nullable=False),
        sa.Column("sources", sa.Integer(), nullable=False),
        sa.Column("reused", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("opened", sa.Integer(), nullable=False),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("excluded", sa.JSON(), nullable=False),
        sa.Column("mirror", sa.String(length=64), nullable=True),
        sa.Column("checked_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["plan"], ["blobs.hash"], name=op.f("fk_builds_plan")),
        sa.ForeignKeyConstraint(["problems"], ["blobs.hash"], name=op.f("fk_builds_problems")),
        sa.ForeignKeyConstraint(["submission"], ["blobs.hash"], name=op.f("fk_builds_submission")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_builds")),
    )
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.create_index("ix_builds_state", ["state"], unique=False)
        batch_op.create_index(
            "uq_builds_running_identity",
            ["identity"],
            unique=True,
            sqlite_where=sa.text("state IN ('queued', 'planning', 'indexing', 'packing', 'publishing')"),
            postgresql_where=sa.text("state IN ('queued', 'planning', 'indexing', 'packing', 'publishing')"),
        )

    op.create_table(
        "contents",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("recipe", sa.String(length=64), nullable=False),
        sa.Column("strength", sa.String(length=16), nullable=False),
        sa.Column("hash", sa.LargeBinary(length=32), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("object", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("findings", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(["object"], ["objects.id"], name=op.f("fk_contents_object")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_contents")),
        sa.UniqueConstraint("hash", "recipe", "strength", name=op.f("uq_contents_hash_recipe_strength")),
    )
    op.create_table(
        "pending",
        sa.Column("address", sa.String(length=4096), nullable=False),
        sa.Column("recipe", sa.String(length=64), nullable=False),
        sa.Column("unit", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(["unit"], ["units.id"], name=op.f("fk_pending_unit")),
        sa.PrimaryKeyConstraint("address", "recipe", name=op.f("pk_pending")),
    )
    with op.batch_alter_table("pending", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_pending_unit"), ["unit"], unique=False)

    op.create_table(
        "build_datasets",
        sa.Column("build", sa.String(length=26), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("type", sa.String(length=128), nullable=False),
        sa.Column("list_hash", sa.String(length=64), nullable=False),
        sa.Column("sources", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["build"], ["builds.id"], name=op.f("fk_build_datasets_build")),
        sa.ForeignKeyConstraint(["list_hash"], ["blobs.hash"], name=op.f("fk_build_datasets_list_hash")),
        sa.PrimaryKeyConstraint("build", "position", name=op.f("pk_build_datasets")),
    )
    op.create_table(
        "sources",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("address", sa.String(length=4096), nullable=False),
        sa.Column("recipe", sa.String(length=64), nullable=False),
        sa.Column("token", sa.String(length=256), nullable=False),
        sa.Column("racy", sa.Boolean(), nullable=False),
        sa.Column("content", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("mirror", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("path", sa.String(length=4096), nullable=True),
        sa.ForeignKeyConstraint(["content"], ["contents.id"], name=op.f("fk_sources_content")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sources")),
        sa.UniqueConstraint("address", "recipe", name=op.f("uq_sources_address_recipe")),
    )
    op.create_table(
        "subscriptions",
        sa.Column("unit", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("build", sa.String(length=26), nullable=False),
        sa.Column("sources", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["build"], ["builds.id"], name=op.f("fk_subscriptions_build")),
        sa.ForeignKeyConstraint(["unit"], ["units.id"], name=op.f("fk_subscriptions_unit")),
        sa.PrimaryKeyConstraint("unit", "build", name=op.f("pk_subscriptions")),
    )
    with op.batch_alter_table("subscriptions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_subscriptions_build"), ["build"], unique=False)


def downgrade() -> None:
    """Go back to the one before."""
    with op.batch_alter_table("subscriptions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_subscriptions_build"))

    op.drop_table("subscriptions")
    op.drop_table("sources")
    op.drop_table("build_datasets")
    with op.batch_alter_table("pending", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_pending_unit"))

    op.drop_table("pending")
    op.drop_table("contents")
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_builds_running_identity",
            sqlite_where=sa.text("state IN ('queued', 'planning', 'indexing', 'packing', 'publishing')"),
            postgresql_where=sa.text("state IN ('queued', 'planning', 'indexing', 'packing', 'publishing')"),
        )
        batch_op.drop_index("ix_builds_state")

    op.drop_table("builds")
    with op.batch_alter_table("units", schema=None) as batch_op:
        batch_op.drop_index("ix_units_lease")
        batch_op.drop_index("ix_units_claim")

    op.drop_table("units")
    op.drop_table("outbox")
    op.drop_table("objects")
    op.drop_table("names")
    op.drop_table("name_history")
    with op.batch_alter_table("mirrors", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_mirrors_source_set"))

    op.drop_table("mirrors")
    op.drop_table("meta")
    op.drop_table("blobs")
