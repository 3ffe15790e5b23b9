"""Teams: whose turn it is, and later who may see what"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.add_column("builds", sa.Column("team", sa.String(length=128), server_default="", nullable=False))


def downgrade() -> None:
    """Go back to the revision before."""
    op.drop_column("builds", "team")
