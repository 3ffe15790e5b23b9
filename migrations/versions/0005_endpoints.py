"""What endpoints of object stores were measured to do"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.create_table(
        "endpoints",
        sa.Column("profile", sa.String(length=64), nullable=False),
        sa.Column("latency", sa.Float(), nullable=False),
        sa.Column("stream", sa.Float(), nullable=False),
        sa.Column("together", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("profile", name=op.f("pk_endpoints")),
    )


def downgrade() -> None:
    """Go back to the revision before."""
    op.drop_table("endpoints")
