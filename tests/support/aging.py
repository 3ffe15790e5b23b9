"""Time passes for a catalog: what was used, marked or taken was so longer ago."""

from __future__ import annotations

from sqlalchemy import text

from blendex.builds.site import Site

LONG = 400 * 24 * 3600.0


def age(site: Site, seconds: float = LONG, mirror: str | None = None) -> None:
    """Everything that collecting goes by happened ``seconds`` earlier; with ``mirror`` what there is of that one."""
    if mirror is not None:
        change = "used_at = used_at - :s, condemned_at = condemned_at - :s"
        with site.work.write() as session:
            session.execute(text(f"UPDATE mirrors SET {change} WHERE key = :key"), {"s": seconds, "key": mirror})
        return
    moved = {
        "mirrors": ("created_at", "used_at", "condemned_at"), "objects": ("created_at", "dying_at"),
        "holds": ("since", "until"),
    }  # fmt: skip
    with site.work.write() as session:
        for table, columns in moved.items():
            for column in columns:
                session.execute(text(f"UPDATE {table} SET {column} = {column} - :s"), {"s": seconds})
