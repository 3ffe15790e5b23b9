"""Sources and contents: room for the one update of a row in its page, and no look at what a row was just made from

A source is written when it is read, and once more when a mirror has its sidecar: with room in its page the second
writes no index. What it refers to is found or made in the same transaction, and never taken away.
"""

from __future__ import annotations

from alembic import op

from blendex.catalog import dialect

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    # In this order: SQLite makes the tables anew, and lets none go that another one refers to.
    with op.batch_alter_table("sources", schema=None) as batch_op:
        batch_op.drop_constraint(op.f("fk_sources_content"), type_="foreignkey")
    with op.batch_alter_table("contents", schema=None) as batch_op:
        batch_op.drop_constraint(op.f("fk_contents_object"), type_="foreignkey")
    # Each row is written twice, the second time a little longer: the table takes as much as with full pages.
    dialect.leave_room(op.get_bind(), "sources", 45)


def downgrade() -> None:
    """Go back to the revision before."""
    dialect.leave_room(op.get_bind(), "sources", 100)
    with op.batch_alter_table("contents", schema=None) as batch_op:
        batch_op.create_foreign_key(op.f("fk_contents_object"), "objects", ["object"], ["id"])
    with op.batch_alter_table("sources", schema=None) as batch_op:
        batch_op.create_foreign_key(op.f("fk_sources_content"), "contents", ["content"], ["id"])
