"""Rebinding: the build of a blend whose paths moved, proven against the mirror that it had before they did.

The blend is the same but for the paths. Each source at its new place must be what the old mirror was made from: the
same file, when its token is the one that the old place had (a folder that was renamed, or is mounted elsewhere), else
it is read once, as every new source is, and its content hash decides. Offsets come from bundles, by content.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy.orm import Session

from blendex.blend.world import World, has_scheme
from blendex.builds.judging import Judged
from blendex.builds.site import Site
from blendex.catalog import sources
from blendex.errors import BlendexError, Code
from blendex.formats.kinds import KINDS
from blendex.units.receipt import read_sources

Moves = Sequence[Sequence[str]]
"""[prefix as it was, prefix as it is] each."""


def checked(moves: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The moves, without slashes at their ends, the longest first.

    Raises:
        BlendexError: bad_request.
    """
    found = {}
    for old, new in moves:
        pair = [item.rstrip("/") for item in (old, new)]
        if not all(item.startswith("/") or has_scheme(item) for item in pair) or "\0" in old + new or pair[0] in found:
            raise BlendexError(
                Code.BAD_REQUEST,
                f"map={old[:200]}={new[:200]} is no move from one folder to another.",
                next_step="Write map=/old/folder=/new/folder, each absolute or a URL, each old folder once.",
            )
        found[pair[0]] = pair[1]
    if not found:
        raise BlendexError(
            Code.BAD_REQUEST, "nothing is said to have moved.", next_step="Say map=/old/folder=/new/folder."
        )
    return [[old, found[old]] for old in sorted(found, key=lambda old: (-len(old), old))]


def moved(path: str, moves: Moves) -> str:
    """A path after the moves."""
    for old, new in moves:
        if path == old or path.startswith(old + "/"):
            return new + path[len(old) :]
    return path


def moved_submission(gathered: dict[str, Any], moves: Moves) -> dict[str, Any]:
    """What was gathered, with all paths moved that begin with a prefix: in the blend and those nested in it, in the
    base and in the values of variables."""
    world = gathered["world"]
    return gathered | {
        "text": _moved_text(gathered["text"], moves),
        "nested": {moved(path, moves): _moved_text(text, moves) for path, text in gathered["nested"].items()},
        "world": world
        | {
            "base": moved(world["base"], moves) if world.get("base") else world.get("base"),
            "variables": {name: moved(value, moves) for name, value in world["variables"].items()},
            "env": {name: moved(value, moves) for name, value in world["env"].items()},
        },
    }


def _moved_text(text: str, moves: Moves) -> str:
    """A blend with its paths moved, and nothing else: a prefix counts where a path begins and a component ends."""
    known = {old: new for old, new in moves}  # noqa: C416 -- pairs may be lists
    prefixes = "|".join(map(re.escape, known))
    return re.sub(rf"(?<![\w./}}:-])(?:{prefixes})(?=[/\s\"',\]}}]|$)", lambda found: known[found[0]], text)


def _back(moves: Moves) -> list[list[str]]:
    return sorted(([new, old] for old, new in moves), key=lambda pair: -len(pair[0]))


def same_files(
    session: Session, rebind: dict[str, Any], world: dict[str, Any], rows: Iterable[tuple[str, str, str, str]]
) -> int:
    """Let what is known of the old places of some sources be known of the new ones, where these are the same files.

    Args:
        session: of the catalog, writing.
        rebind: as the build's options hold it.
        world: of the submission.
        rows: (path, recipe, address, token) of each source, as the plan saw it.

    Returns:
        Of how many.
    """
    back = _back(rebind["moves"])
    before = World.from_dict(world | {"base": moved(world["base"], back) if world["base"] else None})
    wanted: dict[str, dict[str, tuple[str, str]]] = {}
    for path, recipe, address, token in rows:
        try:
            old = before.address(moved(path, back))
        except BlendexError:
            continue  # a source that had no address then is read
        if old != address:
            wanted.setdefault(recipe, {})[old] = (address, token)
    count = 0
    for recipe, places in wanted.items():
        found = {
            item.address: places[item.address][0]
            for item in sources.known(session, recipe, list(places))
            if item.has_content and not item.racy and item.token == places[item.address][1]
        }
        sources.also_at(session, recipe, found)
        count += len(found)
    return count


def differences(site: Site, session: Session, rebind: dict[str, Any], judged: Judged) -> list[dict[str, Any]]:
    """Sources that are not what the old mirror was made from: a problem each.

    Args:
        site: where the old mirror is.
        session: of the catalog.
        rebind: as the build's options hold it.
        judged: what the build found at the new places.
    """
    back = _back(rebind["moves"])
    wanted = {
        (kind, moved(path, back)): number
        for number, (kind, path) in enumerate(judged.rows)
        if judged.kept[number] and not KINDS[kind].derived  # made from others, which are compared
    }
    try:
        for line in read_sources(site.root.mirror(rebind["mirror"])):
            number = wanted.get((line["kind"], line["path"]))
            if number is not None and _same(session, line, *judged.contents.of(number)):
                del wanted[line["kind"], line["path"]]
    except BlendexError as error:  # collected meanwhile, or damaged
        return [error.as_dict() | {"scope": "entry", "pointer": None}]
    return [_problem(judged.rows[number][1], old, rebind["mirror"]) for (_, old), number in sorted(wanted.items())]


def _same(session: Session, line: dict[str, Any], content_hash: str, size: int) -> bool:
    """Whether a line of the old receipt tells of this content."""
    if line["size"] != size:
        return False
    if not KINDS[line["kind"]].bound:
        return bool(line["content_hash"] == content_hash)
    # The hash in the receipt has path and time in it: the one of the bytes is the catalog's, if it knows them still.
    known = next(sources.known(session, line["recipe"], [line["address"]]), None)
    return known is not None and known.token == line["token"] and known.content_hash == content_hash


def _problem(path: str, old: str, mirror: str) -> dict[str, Any]:
    return BlendexError(
        Code.SOURCE_CHANGED,
        f"it is not what {old} was when mirror {mirror[:12]} was made of it.",
        file=path,
        next_step="Bring the old content to the new place, or post the blend as a new one, without rebind.",
    ).as_dict() | {"scope": "source", "path": path, "pointer": None}
