"""Turns by team, owner and build; memory that the workers of one host share; what was observed"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Go to this revision."""
    op.create_table(
        "lanes",
        sa.Column("build", sa.String(length=26), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("team", sa.String(length=160), nullable=False),
        sa.Column("owner", sa.String(length=160), nullable=False),
        sa.Column("own", sa.String(length=160), nullable=False),
        sa.PrimaryKeyConstraint("build", "priority", name=op.f("pk_lanes")),
    )
    op.create_table(
        "shares",
        sa.Column("id", sa.String(length=160), nullable=False),
        sa.Column("served", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_shares")),
    )
    op.create_table(
        "ledgers",
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("host", sa.String(length=256), nullable=False),
        sa.Column("source", sa.String(length=256), nullable=False),
        sa.Column("reserved", ROW_ID, nullable=True),
        sa.Column("rest_until", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledgers")),
    )
    op.create_table(
        "observations",
        sa.Column("sort", sa.String(length=96), nullable=False),
        sa.Column("peak", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("predicted", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("sort", name=op.f("pk_observations")),
    )
    op.create_table(
        "deaths",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("work", sa.String(length=16), nullable=False),
        sa.Column("build", sa.String(length=26), nullable=False),
        sa.Column("unit", ROW_ID, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("cause", sa.String(length=16), nullable=False),
        sa.Column("how", sa.String(length=64), nullable=False),
        sa.Column("in_hand", sa.String(length=4096), nullable=True),
        sa.Column("memory", sa.BigInteger(), nullable=False),
        sa.Column("worker", sa.String(length=128), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deaths")),
    )
    op.create_index("ix_deaths_at", "deaths", ["at"])
    op.create_index("ix_deaths_build", "deaths", ["build"])
    with op.batch_alter_table("workers", schema=None) as batch_op:
        batch_op.add_column(sa.Column("ledger", sa.String(length=128), server_default="", nullable=False))
        batch_op.add_column(sa.Column("process", sa.String(length=128), server_default="", nullable=False))
        batch_op.add_column(sa.Column("used", sa.BigInteger(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("polled_at", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("waiting", sa.String(length=400), nullable=True))
        batch_op.create_index("ix_workers_ledger", ["ledger"])
    with op.batch_alter_table("mirrors", schema=None) as batch_op:
        batch_op.add_column(sa.Column("own_files", sa.BigInteger(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("own_bytes", sa.BigInteger(), server_default="0", nullable=False))
    with op.batch_alter_table("units", schema=None) as batch_op:
        batch_op.add_column(sa.Column("losses", sa.Integer(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("delays", sa.Integer(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("not_before", sa.Float(), nullable=True))
        batch_op.drop_index("ix_units_claim")
        batch_op.create_index("ix_units_lane", ["state", "build", "priority", "memory"])
        batch_op.create_index("ix_units_order", ["state", "build", "priority", "cost", "id"])
        batch_op.create_index("ix_units_heavy", ["state", "memory"])
    # Who waits already gets a lane. The owner stands in for the team.
    op.execute(
        "INSERT INTO lanes (build, priority, team, owner, own) "
        "SELECT DISTINCT units.build, units.priority, 'team/' || coalesce(builds.owner, ''), "
        "'owner/' || coalesce(builds.owner, ''), 'build/' || units.build "
        "FROM units LEFT JOIN builds ON builds.id = units.build WHERE units.state IN ('waiting', 'leased')"
    )
    op.execute(
        "INSERT INTO shares (id, served) SELECT own, 0 FROM lanes UNION SELECT owner, 0 FROM lanes "
        "UNION SELECT team, 0 FROM lanes"
    )


def downgrade() -> None:
    """Go back to the revision before."""
    with op.batch_alter_table("units", schema=None) as batch_op:
        batch_op.drop_index("ix_units_heavy")
        batch_op.drop_index("ix_units_order")
        batch_op.drop_index("ix_units_lane")
        batch_op.create_index("ix_units_claim", ["state", "priority", "turn"])
        batch_op.drop_column("not_before")
        batch_op.drop_column("delays")
        batch_op.drop_column("losses")
    with op.batch_alter_table("mirrors", schema=None) as batch_op:
        batch_op.drop_column("own_bytes")
        batch_op.drop_column("own_files")
    with op.batch_alter_table("workers", schema=None) as batch_op:
        batch_op.drop_index("ix_workers_ledger")
        batch_op.drop_column("waiting")
        batch_op.drop_column("polled_at")
        batch_op.drop_column("used")
        batch_op.drop_column("process")
        batch_op.drop_column("ledger")
    op.drop_table("deaths")
    op.drop_table("observations")
    op.drop_table("ledgers")
    op.drop_table("shares")
    op.drop_table("lanes")
