"""Query parameters: none is ignored in silence, and those of a submission become its world and options."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fastapi import Depends, Query
from starlette.requests import Request

from blendex.blend.world import World
from blendex.builds import labels
from blendex.errors import BlendexError, Code

_VIEW = re.compile(
    r"(/.*?|[A-Za-z][A-Za-z0-9+.-]*://.+?)=(/.*|(?:[a-z][a-z0-9_-]*:)?[A-Za-z][A-Za-z0-9+.-]*://.+)", re.DOTALL
)

LONGEST_WAIT = 60.0

Wait = Annotated[
    float,
    Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for the build to end, at most 60."),
]
Limit = Annotated[int, Query(ge=1, le=200, description="Most items on this page.")]


def _parameters(dependant: Any) -> Iterator[tuple[str, bool]]:
    for parameter in dependant.query_params:
        annotation = parameter.field_info.annotation
        kinds = (annotation, *typing.get_args(annotation))
        yield parameter.alias, any(kind is list or typing.get_origin(kind) is list for kind in kinds)
    for inner in dependant.dependencies:
        yield from _parameters(inner)


def refuse_unknown(request: Request) -> None:
    """Refuse a query parameter that the endpoint does not read, or reads once and got twice.

    Raises:
        BlendexError: bad_request, naming the nearest one that is known.
    """
    given = [name for name, _ in request.query_params.multi_items()]
    if not given:
        return
    known = dict(_parameters(request.scope["route"].dependant))
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            told = f"Did you mean {near[0]}? " if near else ""
            listed = ", ".join(sorted(known)) or "none"
            raise BlendexError(
                Code.BAD_REQUEST,
                f"the query parameter {name[:80]!r} is unknown here.",
                next_step=f"{told}Known are: {listed}.",
            )
        if not known[name] and given.count(name) > 1:
            raise BlendexError(
                Code.BAD_REQUEST,
                f"the query parameter {name} is given more than once.",
                next_step="Give it once.",
            )


@dataclass(frozen=True, slots=True)
class Options:
    """What the query of a submission says."""

    world: World
    main: str | None
    allow: tuple[str, ...]
    compat: str
    on_bad: str
    name: str | None
    packs: str
    sidecars: str
    tars: str = "offsets"
    priority: str = "bulk"
    notify: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def _bad(message: str, next_step: str) -> BlendexError:
    return BlendexError(Code.BAD_REQUEST, message, next_step=next_step)


def _pairs(items: list[str], name: str) -> dict[str, str]:
    result: dict[str, str] = {}
    for item in items:
        key, sign, value = item.partition("=")
        if not sign or not key:
            raise _bad(f"{name}={item[:80]!r} is not NAME=VALUE.", f"Write {name}=NAME=VALUE, escaped for a URL.")
        if key in result:
            raise _bad(f"{name} gives {key[:80]} twice.", "Give it once.")
        result[key] = value
    return result


def prefixes(request: Request, names: tuple[str, ...] = ("view", "map")) -> tuple[tuple[str, str], ...]:
    """Pairs of prefixes in the order of the query, as of the view, whichever of its two names was used.

    Raises:
        BlendexError: bad_request.
    """
    result = []
    for name, item in request.query_params.multi_items():
        if name not in names:
            continue
        # Both sides are absolute, so the first "=" before a slash or a URL parts them, also after a folder lang=en.
        found = _VIEW.fullmatch(item)
        if found is None:
            raise _bad(
                f"{name}={item[:80]!r} is not FROM=TO with two absolute paths or URLs.",
                f"Write {name}=/path/as/the/job/sees/it=/path/as/workers/see/it, or TO as a URL.",
            )
        result.append((found[1], found[2]))
    return tuple(result)


def submission_world(
    request: Request,
    base: Annotated[
        str | None,
        Query(description="The absolute folder that relative paths mean; for a tar, where its main file stands."),
    ] = None,
    var: Annotated[list[str], Query(description="`NAME=VALUE`: what `${NAME}` means. Repeatable.")] = [],  # noqa: B006
    env: Annotated[list[str], Query(description="`NAME=VALUE`: what `${oc.env:NAME}` means. Repeatable.")] = [],  # noqa: B006
    view: Annotated[  # read in its order from the query itself
        list[str],
        Query(description="`FROM=TO`: paths as the job sees them, where workers see them. Repeatable, ordered."),
    ] = [],  # noqa: B006
    map: Annotated[list[str], Query(description="Another spelling of `view`.")] = [],  # noqa: A002, B006
) -> World:
    """The world of a submission.

    Raises:
        BlendexError: bad_request.
    """
    if base is not None and (not base.startswith("/") or "\0" in base):
        raise _bad(f"base={base[:80]!r} is not absolute.", "Name the folder from the root on: base=/data/blends.")
    return World(base=base, variables=_pairs(var, "var"), env=_pairs(env, "env"), view=prefixes(request))


def submission_options(
    world: Annotated[World, Depends(submission_world)],
    main: Annotated[str | None, Query(description="In a tar: the blend, by its path in the tar.")] = None,
    allow: Annotated[
        list[str], Query(description="Findings to take as they are. Repeatable, or separated by commas.")
    ] = [],  # noqa: B006
    compat: Annotated[Literal["", "upstream"], Query(description="`upstream`: its bytes, bugs included.")] = "",
    on_bad: Annotated[Literal["fail", "exclude"], Query(description="What a bad source does to its entry.")] = "fail",
    name: Annotated[str | None, Query(description="A name to point at the build when it is ready.")] = None,
    packs: Annotated[
        str,
        Query(description="`auto`, `all`, `none`, or names of datasets with commas between: which become one file."),
    ] = "auto",
    sidecars: Annotated[
        Literal["unpacked", "all"], Query(description="`all`: loose sidecars of packed datasets as well.")
    ] = "unpacked",
    tars: Annotated[
        Literal["offsets", "paths"],
        Query(description="`paths`: tars in AIStore are packed unread; training needs `USE_AIS_GET_BATCH=true`."),
    ] = "offsets",
    priority: Annotated[
        Literal["interactive", "bulk", "maintenance"],
        Query(description="What comes first. The same blend again, more urgently, hurries the build that runs."),
    ] = "bulk",
    notify: Annotated[
        list[str],
        Query(description="A receiver of the settings that is told what becomes of it. Repeatable."),
    ] = [],  # noqa: B006
    label: Annotated[
        list[str], Query(description="`KEY=VALUE`: to find the build by; changes nothing about it. Repeatable.")
    ] = [],  # noqa: B006
) -> Options:
    """The options of a submission.

    Raises:
        BlendexError: bad_request.
    """
    allowed = tuple(part.strip() for item in allow for part in item.split(",") if part.strip())
    return Options(
        world, main, allowed, compat, on_bad, name, packs, sidecars, tars, priority, tuple(notify), labels.parse(label)
    )
