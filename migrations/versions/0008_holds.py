"""Holds: what keeps a mirror, and the two steps by which what nobody holds goes"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.create_table(
        "holds",
        sa.Column("mirror", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("team", sa.String(length=128), nullable=False),
        sa.Column("holder", sa.String(length=128), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("until", sa.Float(), nullable=True),
        sa.Column("reason", sa.String(length=500), nullable=True),
        sa.PrimaryKeyConstraint("mirror", "kind", "team", "holder", name=op.f("pk_holds")),
    )
    op.create_index("ix_holds_holder", "holds", ["kind", "holder"])
    with op.batch_alter_table("mirrors", schema=None) as batch_op:
        batch_op.add_column(sa.Column("condemned_at", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("grave", sa.String(length=128), nullable=True))
    with op.batch_alter_table("objects", schema=None) as batch_op:
        batch_op.add_column(sa.Column("dying_at", sa.Float(), nullable=True))


def downgrade() -> None:
    """Go back to the revision before. What is condemned is served by the older version, too."""
    op.execute("UPDATE mirrors SET state = 'published' WHERE state = 'condemned'")
    op.execute("UPDATE mirrors SET state = 'collected' WHERE state = 'collecting'")
    op.execute("UPDATE objects SET state = 'live' WHERE state = 'dying'")
    with op.batch_alter_table("objects", schema=None) as batch_op:
        batch_op.drop_column("dying_at")
    with op.batch_alter_table("mirrors", schema=None) as batch_op:
        batch_op.drop_column("grave")
        batch_op.drop_column("condemned_at")
    op.drop_index("ix_holds_holder", table_name="holds")
    op.drop_table("holds")
