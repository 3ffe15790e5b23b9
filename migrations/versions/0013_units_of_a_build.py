"""Subscriptions: an index that answers what a build waits for, without its rows"""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.create_index("ix_subscriptions_units", "subscriptions", ["build", "unit", "sources"])
    op.drop_index(op.f("ix_subscriptions_build"), table_name="subscriptions")


def downgrade() -> None:
    """Go back to the revision before."""
    op.create_index(op.f("ix_subscriptions_build"), "subscriptions", ["build"])
    op.drop_index("ix_subscriptions_units", table_name="subscriptions")
