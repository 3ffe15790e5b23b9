"""Pages: when units ran, what became of them, records of datasets, one source to read again"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    with op.batch_alter_table("units", schema=None) as batch_op:
        batch_op.add_column(sa.Column("leased_at", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("ended_at", sa.Float(), nullable=True))
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.add_column(sa.Column("trace", sa.String(length=64), nullable=True))
        batch_op.add_column(sa.Column("again", sa.JSON(none_as_null=True), nullable=True))
    with op.batch_alter_table("build_datasets", schema=None) as batch_op:
        batch_op.add_column(sa.Column("weight", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("records", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("bytes", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Go back to the revision before."""
    with op.batch_alter_table("build_datasets", schema=None) as batch_op:
        batch_op.drop_column("bytes")
        batch_op.drop_column("records")
        batch_op.drop_column("weight")
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.drop_column("again")
        batch_op.drop_column("trace")
    with op.batch_alter_table("units", schema=None) as batch_op:
        batch_op.drop_column("ended_at")
        batch_op.drop_column("leased_at")
