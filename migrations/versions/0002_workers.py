"""Workers tell of themselves; builds take turns"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.create_table(
        "workers",
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("host", sa.String(length=256), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("classes", sa.JSON(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("busy", sa.Integer(), nullable=False),
        sa.Column("budget", sa.BigInteger(), nullable=False),
        sa.Column("taken", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False),
        sa.Column("seen_until", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    with op.batch_alter_table("units", schema=None) as batch_op:
        batch_op.add_column(sa.Column("turn", sa.BigInteger(), nullable=False, server_default="0"))
        batch_op.add_column(sa.Column("waiting_since", sa.Float(), nullable=True))
        batch_op.drop_index("ix_units_claim")
        batch_op.create_index("ix_units_claim", ["state", "priority", "turn"], unique=False)


def downgrade() -> None:
    """Go back to the one before."""
    with op.batch_alter_table("units", schema=None) as batch_op:
        batch_op.drop_index("ix_units_claim")
        batch_op.create_index("ix_units_claim", ["state", "priority", "cost"], unique=False)
        batch_op.drop_column("waiting_since")
        batch_op.drop_column("turn")

    op.drop_table("workers")
