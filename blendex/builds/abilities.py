"""Which recipes a unit needs and a program has: so that programs of two versions can work for one catalog.

A unit names what it needs: the protocol that programs and units speak, the recipes of the kinds it reads, that of
packs. A worker claims only what it has all of, and a build that is planned in newer recipes is brought on by those who
have them. What needs a recipe that nobody has waits, and says so, until a worker of that version comes; unless this
program has a newer one of it: then the worker that had it is gone for good, and the build is planned again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from itertools import combinations

from sqlalchemy.orm import Session

from blendex.builds import packs
from blendex.catalog import units, workers
from blendex.formats.kinds import KINDS, recipe

# Of payloads, of outcomes, and of what both mean. Raise it when a program of before would take one of them wrongly.
PROTOCOL = "protocol/1"
COMPATS = ("", "upstream")


def needs(recipes: Iterable[str] = ()) -> str:
    """What a unit names, that needs these recipes."""
    return ",".join(sorted({PROTOCOL, *recipes}))


def needs_of(kinds: Iterable[str], compat: str) -> str:
    """What a unit names, that reads sources of these kinds."""
    return needs(recipe(kind, compat) for kind in kinds)


def needs_of_build(kinds: Iterable[str], compat: str) -> str:
    """What planning, packing and publishing a build need: whoever goes on with it reads and makes the same keys."""
    return needs([packs.RECIPE, *(recipe(kind, compat) for kind in kinds)])


def own() -> list[str]:
    """All that this program has."""
    return sorted({PROTOCOL, packs.RECIPE, *(recipe(kind, compat) for kind in KINDS for compat in COMPATS)})


def able() -> list[str]:
    """Everything that a unit may name, and this program can do."""
    return list(_able(tuple(own())))


@lru_cache(maxsize=4)
def _able(_: tuple[str, ...]) -> tuple[str, ...]:
    found = set()
    for compat in COMPATS:
        items = [packs.RECIPE, *(recipe(kind, compat) for kind in KINDS)]
        for count in range(len(items) + 1):
            found |= {needs(some) for some in combinations(items, count)}
    return tuple(sorted(found))


def missing(named: str | None, has: Collection[str]) -> list[str]:
    """Of what a unit names that which is not there; nothing for one that was made before units named anything."""
    return [] if named is None else [item for item in named.split(",") if item not in has]


def can(named: str | None) -> bool:
    """Whether this program can do it."""
    return not missing(named, own())


def superseded(items: Iterable[str]) -> bool:
    """Whether this program has a newer one of each of these."""
    newest = {_family(item): _version(item) for item in own()}
    return all(_version(item) < newest.get(_family(item), 0) for item in items)


def _family(item: str) -> tuple[str, str]:
    name, _, rest = item.partition("/")
    return name, rest.partition("+")[2]


def _version(item: str) -> int:
    text = item.partition("/")[2].partition("+")[0]
    return int(text) if text.isdigit() else 0


def lacking(session: Session) -> dict[str, int]:
    """Recipes that waiting units need and none of the workers that are there has, with how many units do."""
    has = workers.recipes(session)
    found: dict[str, int] = {}
    if not has:
        return found  # somebody does all, or there is nobody, which is told elsewhere
    for named, count in units.needed(session).items():
        for item in missing(named, has):
            found[item] = found.get(item, 0) + count
    return found
