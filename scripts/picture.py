"""Draw docs/architecture.svg: the rooms in the layers that .importlinter holds, and which room uses which in the code.

``--check``: is it as the code says? An arrow that follows from others (a uses b, b uses c) is left out: what is drawn
is the least that tells who may reach whom.
"""

from __future__ import annotations

import configparser
import re
import sys
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "architecture.svg"
WIDTH, HEIGHT, GAP, ROW = 128, 40, 24, 78
MARGIN = 20
SAYS = {
    "blendex.cli": "knows everything",
    "service": "HTTP, text, pages",
    "workers": "Celery wakes",
    "blendex.api": "plan, build, resolve",
    "blendex.builds": "submit, claim, finish",
    "blendex.lint": "rules, patches",
    "blendex.resume": "exact resume",
    "blendex.mirrors": "keys, pointers",
    "blendex.catalog": "rows, queries, states",
    "blendex.runtime": "children, memory",
    "blendex.units": "what a child does",
    "blendex.storage": "list, stat, read",
    "blendex.blend": "YAML to sources",
    "blendex.formats": "bytes to offsets",
    "blendex.settings": "BLENDEX_…",
    "blendex.errors": "closed list of codes",
    "blendex.observability": "logs, metrics",
    "blendex.version": "one number",
}
# Where a room stands beside the middle, in columns, so that arrows which pass its row pass it as well.
ASIDE = {"blendex.lint": -1.6, "blendex.resume": 1.7, "blendex.mirrors": 1.0}
# What everybody uses would be an arrow from everywhere.
GROUND = ("blendex.settings", "blendex.errors", "blendex.observability", "blendex.version")
STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1b2733; text-anchor: middle }
.says { font-size: 10.5px; fill: #4a5b6c }
.paper { fill: #ffffff }
.room { fill: #eef4fa; stroke: #33678f; stroke-width: 1.2 }
.ground { fill: #f3f3f0; stroke: #77766e }
.uses { fill: none; stroke: #5b7890; stroke-width: 1.2; marker-end: url(#head) }
#head path { fill: #5b7890 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .says { fill: #a9b8c6 } .paper { fill: #10161d }
  .room { fill: #1a2733; stroke: #6ea8d6 } .ground { fill: #22241f; stroke: #99978c }
  .uses { stroke: #8fb0ca } #head path { fill: #8fb0ca }
}"""


def layers() -> list[list[str]]:
    """The rooms, the highest layer first, as the contract names them."""
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter")
    lines = config["importlinter:contract:layers"]["layers"].strip().splitlines()
    return [[name.strip(" ()") for name in re.split(r"[|:]", line)] for line in lines]


def uses(rooms: list[str]) -> dict[str, set[str]]:
    """Which room imports from which, without what follows from others."""
    graph = grimp.build_graph("blendex", "service", "workers", "migrations")
    modules = {room: {room} | set(graph.find_descendants(room)) for room in rooms}
    owner = {module: room for room, inside in modules.items() for module in inside}
    direct: dict[str, set[str]] = {room: set() for room in rooms}
    for module, room in owner.items():
        for imported in graph.find_modules_directly_imported_by(module):
            other = owner.get(imported)
            if other is not None and other != room:
                direct[room].add(other)

    def reach(room: str) -> set[str]:
        return direct[room].union(*(reach(other) for other in direct[room]))

    return {
        room: {
            other for other in found if not any(other in reach(between) for between in found if between != other)
        }
        for room, found in direct.items()
    }  # fmt: skip


def draw() -> str:
    """The picture."""
    there = {path.parent for path in ROOT.glob("*/**/*.py")} | {path.with_suffix("") for path in ROOT.glob("*/*.py")}
    rows = [[room for room in row if ROOT / room.replace(".", "/") in there] for row in layers()]
    rooms = [room for row in rows for room in row]
    column = WIDTH + GAP
    at: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        for place, room in enumerate(row):
            at[room] = (ASIDE.get(room, place - (len(row) - 1) / 2) * column, MARGIN + number * ROW)
    left = min(x for x, _ in at.values()) - WIDTH / 2 - MARGIN
    at = {room: (round(x - left), y) for room, (x, y) in at.items()}
    width = max(x for x, _ in at.values()) + WIDTH // 2 + MARGIN
    height = len(rows) * ROW - (ROW - HEIGHT) + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-labelledby="title">',
        '<title id="title">The rooms of Blendex in layers; an arrow leads from a room to one it uses</title>',
        f"<style>\n{STYLE}\n</style>",
        '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0 1 L7 4 L0 7 z"/></marker></defs>',
        f'<rect class="paper" width="{width}" height="{height}" rx="8"/>',
    ]
    for room, others in uses(rooms).items():
        for other in sorted(others):
            if other not in GROUND and room not in GROUND:
                (x, y), (u, v) = at[room], at[other]
                turn, bend = v - (ROW - HEIGHT), (ROW - HEIGHT) / 2  # straight down to the gap above the other
                lines.append(
                    f'<path class="uses" d="M{x:g} {y + HEIGHT:g} V{turn:g} '
                    f'C{x:g} {turn + bend:g} {u:g} {v - bend:g} {u:g} {v:g}"/>'
                )
    for room, (x, y) in at.items():
        kind = "room ground" if room in GROUND else "room"
        lines += [
            f'<rect class="{kind}" x="{x - WIDTH / 2:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
            f'<text x="{x:g}" y="{y + 17:g}">{room.removeprefix("blendex.")}</text>',
            f'<text class="says" x="{x:g}" y="{y + 31:g}">{SAYS.get(room, "")}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def main() -> int:
    """Write, or compare."""
    picture = draw()
    if "--check" not in sys.argv:
        PICTURE.write_text(picture)
    elif not PICTURE.exists() or PICTURE.read_text() != picture:
        print("docs/architecture.svg is not what the code says: run scripts/picture.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
