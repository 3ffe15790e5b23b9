"""Recipes that units need and workers have; receivers of what became of builds; usage of teams"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.add_column("units", sa.Column("needs", sa.String(length=400), nullable=True))
    op.add_column("builds", sa.Column("recipes", sa.String(length=400), nullable=True))
    op.add_column("workers", sa.Column("recipes", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Go back to the revision before."""
    # Not in batches: SQLite would make the table anew, which rows that refer to it forbid.
    op.drop_column("workers", "recipes")
    op.drop_column("builds", "recipes")
    op.drop_column("units", "needs")
