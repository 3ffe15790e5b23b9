"""Packs"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.create_table(
        "packs",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("object", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("layout_hash", sa.String(length=64), nullable=True),
        sa.Column("counts", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(["object"], ["objects.id"], name=op.f("fk_packs_object")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_packs")),
    )
    with op.batch_alter_table("contents", schema=None) as batch_op:
        batch_op.add_column(sa.Column("learned", sa.Integer(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("crc", sa.BigInteger(), nullable=True))
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.add_column(sa.Column("packs", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    """Go back to the revision before."""
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.drop_column("packs")
    with op.batch_alter_table("contents", schema=None) as batch_op:
        batch_op.drop_column("crc")
        batch_op.drop_column("learned")
    op.drop_table("packs")
