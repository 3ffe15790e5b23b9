"""Endpoints: what a step of several walks through a tar takes"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    with op.batch_alter_table("endpoints", schema=None) as batch_op:
        batch_op.add_column(sa.Column("chained", sa.Float(), server_default="0", nullable=False))


def downgrade() -> None:
    """Go back to the revision before."""
    with op.batch_alter_table("endpoints", schema=None) as batch_op:
        batch_op.drop_column("chained")
