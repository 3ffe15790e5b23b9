"""What pages tell: labels, logs of builds, shares and hours of datasets, former contents, verifications, work in hand"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_ROW = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Go to this revision."""
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.add_column(sa.Column("labels", sa.JSON(), server_default="{}", nullable=False))
    with op.batch_alter_table("build_datasets", schema=None) as batch_op:
        batch_op.add_column(sa.Column("share", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("seconds", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("access", sa.String(length=16), nullable=True))
    with op.batch_alter_table("contents", schema=None) as batch_op:
        batch_op.add_column(sa.Column("seconds", sa.Float(), nullable=True))
    with op.batch_alter_table("sources", schema=None) as batch_op:
        batch_op.add_column(sa.Column("seen_at", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("read_at", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("changes", sa.Integer(), server_default="0", nullable=False))
    with op.batch_alter_table("workers", schema=None) as batch_op:
        batch_op.add_column(sa.Column("in_hand", sa.JSON(none_as_null=True), nullable=True))
    op.create_table(
        "former_contents",
        sa.Column("address", sa.String(length=4096), nullable=False),
        sa.Column("recipe", sa.String(length=64), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("token", sa.String(length=256), nullable=False),
        sa.Column("strength", sa.String(length=16), nullable=False),
        sa.Column("hash", sa.LargeBinary(length=32), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=True),
        sa.Column("read_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("address", "recipe", "slot", name=op.f("pk_former_contents")),
    )
    op.create_table(
        "build_events",
        sa.Column("id", _ROW, nullable=False),
        sa.Column("build", sa.String(length=26), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("event", sa.String(length=32), nullable=False),
        sa.Column("about", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_build_events")),
    )
    with op.batch_alter_table("build_events", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_build_events_build"), ["build"], unique=False)
    op.create_table(
        "verifications",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("with_sources", sa.Boolean(), nullable=False),
        sa.Column("sources", sa.BigInteger(), nullable=False),
        sa.Column("faults", sa.JSON(), nullable=False),
        sa.Column("fault_count", sa.BigInteger(), nullable=False),
        sa.Column("changed", sa.JSON(), nullable=False),
        sa.Column("changed_count", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("began_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("mirror", name=op.f("pk_verifications")),
    )


def downgrade() -> None:
    """Go back to the revision before."""
    op.drop_table("verifications")
    op.drop_table("build_events")
    op.drop_table("former_contents")
    with op.batch_alter_table("workers", schema=None) as batch_op:
        batch_op.drop_column("in_hand")
    with op.batch_alter_table("sources", schema=None) as batch_op:
        batch_op.drop_column("changes")
        batch_op.drop_column("read_at")
        batch_op.drop_column("seen_at")
    with op.batch_alter_table("contents", schema=None) as batch_op:
        batch_op.drop_column("seconds")
    with op.batch_alter_table("build_datasets", schema=None) as batch_op:
        batch_op.drop_column("access")
        batch_op.drop_column("seconds")
        batch_op.drop_column("share")
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.drop_column("labels")
