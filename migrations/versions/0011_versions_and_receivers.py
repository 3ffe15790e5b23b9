"""Recipes that units need and workers have; receivers of what became of builds; usage of teams"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.add_column("units", sa.Column("needs", sa.String(length=400), nullable=True))
    op.add_column("units", sa.Column("traceparent", sa.String(length=64), nullable=True))
    op.add_column("builds", sa.Column("traceparent", sa.String(length=64), nullable=True))
    op.add_column("builds", sa.Column("recipes", sa.String(length=400), nullable=True))
    op.add_column("builds", sa.Column("read_bytes", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("builds", sa.Column("notify", sa.JSON(), nullable=True))
    op.create_table(
        "notices",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("build", sa.String(length=26), nullable=False),
        sa.Column("profile", sa.String(length=64), nullable=False),
        sa.Column("event", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("result", sa.String(length=200), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("not_before", sa.Float(), nullable=False),
        sa.Column("told_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notices")),
    )
    op.create_index(op.f("ix_notices_build"), "notices", ["build"])
    op.create_index("ix_notices_due", "notices", ["state", "not_before"])
    op.add_column("workers", sa.Column("recipes", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Go back to the revision before."""
    # Not in batches: SQLite would make the table anew, which rows that refer to it forbid.
    op.drop_column("workers", "recipes")
    op.drop_table("notices")
    op.drop_column("builds", "notify")
    op.drop_column("builds", "read_bytes")
    op.drop_column("builds", "recipes")
    op.drop_column("builds", "traceparent")
    op.drop_column("units", "traceparent")
    op.drop_column("units", "needs")
