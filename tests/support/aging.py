"""Time passes for a catalog: what was used, marked or taken was so longer ago."""

from __future__ import annotations

from sqlalchemy import text

from blendex.builds.site import Site

LONG = 400 * 24 * 3600.0


def age(site: Site, seconds: float = LONG) -> None:
    """Everything that collecting goes by happened ``seconds`` earlier."""
    moved = {
        "mirrors": ("created_at", "used_at", "condemned_at"), "objects": ("created_at", "dying_at"),
        "holds": ("since", "until"),
    }  # fmt: skip
    with site.work.write() as session:
        for table, columns in moved.items():
            for column in columns:
                session.execute(text(f"UPDATE {table} SET {column} = {column} - :s"), {"s": seconds})
