"""Who asks: teams, tokens, names of teams, and who changed what"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Go to this revision."""
    op.create_table(
        "teams",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("roots", sa.JSON(), nullable=False),
        sa.Column("stores", sa.JSON(), nullable=False),
        sa.Column("views", sa.JSON(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_teams")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("parent", ROW_ID, nullable=True),
        sa.Column("label", sa.String(length=128), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("team", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=8), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("revoked_at", sa.Float(), nullable=True),
        sa.Column("used_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("hash", name=op.f("uq_tokens_hash")),
    )
    op.create_index(op.f("ix_tokens_parent"), "tokens", ["parent"])
    op.create_table(
        "audit",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("team", sa.String(length=128), nullable=False),
        sa.Column("token", ROW_ID, nullable=True),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("object", sa.String(length=128), nullable=False),
        sa.Column("request", sa.String(length=64), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    with op.batch_alter_table("names", schema=None) as batch_op:
        batch_op.add_column(sa.Column("team", sa.String(length=64), server_default="", nullable=False))


def downgrade() -> None:
    """Go back to the revision before."""
    with op.batch_alter_table("names", schema=None) as batch_op:
        batch_op.drop_column("team")
    op.drop_table("audit")
    op.drop_index(op.f("ix_tokens_parent"), table_name="tokens")
    op.drop_table("tokens")
    op.drop_table("teams")
