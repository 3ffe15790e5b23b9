"""Blendex in three calls, for Python programs: ``plan``, ``build``, ``resolve``.

import blendex

mirror = blendex.build("blend.yaml", variables={"data_blend_dir": "/data"}, root="/lustre/blendex")
mirror.path, mirror.blend
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blendex.blend.world import World
from blendex.builds.answers import Answer
from blendex.builds.preview import Preview, preview
from blendex.builds.resolve import Resolver
from blendex.builds.run import run_build
from blendex.builds.site import Site, open_site
from blendex.builds.submission import Submission
from blendex.builds.uses import Uses
from blendex.errors import BlendexError, Code
from blendex.mirrors.names import NAME
from blendex.runtime.slots import Slots
from blendex.settings import Settings
from blendex.storage.root import HEX

# Somebody's own program reads whatever its user may read.
EVERYWHERE = ("/",)


class BuildFailed(BlendexError):  # noqa: N818 -- the word of the states
    """A build that ended without a mirror.

    Attributes:
        problems: everything that was wrong, not only the first.
    """

    def __init__(self, error: BlendexError, problems: list[dict[str, Any]]) -> None:
        super().__init__(
            error.code, error.message, file=error.file, line=error.line, byte=error.byte, next_step=error.next_step
        )
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Built:
    """A published mirror, reached by one build.

    Attributes:
        build: id of the build.
        key: key of the mirror.
        path: its folder; ``path/idx`` is ``indexes_root``.
        blend: the ready blend, a file.
        sources: how many sources it indexes.
        reused: how many were known already.
        excluded: entries that were left out, with who and why.
        packs: of each dataset that was to have a pack: its file, or the reasons against it.
    """

    build: str
    key: str
    path: Path
    blend: Path
    sources: int
    reused: int
    excluded: tuple[dict[str, Any], ...]
    packs: tuple[dict[str, Any], ...]


def _site(root: str | os.PathLike[str] | None) -> Site:
    return open_site(Settings() if root is None else Settings(root=Path(root)), EVERYWHERE, own=True)


def _submission(
    blend: str | os.PathLike[str],
    base: str | None,
    variables: Mapping[str, str] | None,
    env: Mapping[str, str] | None,
    view: Sequence[tuple[str, str]],
    allow: Collection[str],
    compat: str,
    on_bad: str,
    packs: str,
    sidecars: str,
    tars: str,
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Submission:
    path = os.path.abspath(blend)
    return Submission(
        text=Path(path).read_bytes(),
        file=path,
        world=World(base=base or os.getcwd(), variables=variables or {}, env=env or {}, view=tuple(view)),
        compat=compat,
        allow=tuple(allow),
        on_bad=on_bad,
        name=name,
        packs=packs,
        sidecars=sidecars,
        labels=labels or {},
        tars=tars,
    )


def plan(
    blend: str | os.PathLike[str],
    *,
    base: str | None = None,
    variables: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    view: Sequence[tuple[str, str]] = (),
    allow: Collection[str] = (),
    compat: str = "",
    packs: str = "auto",
    sidecars: str = "unpacked",
    tars: str = "offsets",
    root: str | os.PathLike[str] | None = None,
) -> Preview:
    """What a build of a blend would read and make; nothing is built.

    Args:
        blend: a YAML file.
        base: the folder that relative paths of sources mean; the current one by default.
        variables: values of ``${name}``.
        env: values that ``${oc.env:NAME}`` may see.
        view: prefixes of paths as the job sees them, with what this machine calls them.
        allow: findings to take as they are.
        compat: ``"upstream"`` for upstream's exact bytes.
        packs: ``auto``, ``all``, ``none``, or names of datasets with commas between: which become one file each.
        sidecars: ``"all"`` for loose sidecars of packed datasets as well.
        tars: ``"paths"`` to pack tars in AIStore unread; training needs ``USE_AIS_GET_BATCH=true`` then.
        root: the folder of mirrors; ``BLENDEX_ROOT`` or ``./blendex-data`` by default.

    Raises:
        BlendexError: the blend cannot be read at all.
    """
    site = _site(root)
    runner = Slots(1, "blendex.units")
    try:
        return preview(
            site, runner, _submission(blend, base, variables, env, view, allow, compat, "fail", packs, sidecars, tars)
        )
    finally:
        runner.close()
        site.work.engine.dispose()


def build(
    blend: str | os.PathLike[str],
    *,
    base: str | None = None,
    variables: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    view: Sequence[tuple[str, str]] = (),
    allow: Collection[str] = (),
    compat: str = "",
    on_bad: str = "fail",
    packs: str = "auto",
    sidecars: str = "unpacked",
    tars: str = "offsets",
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    root: str | os.PathLike[str] | None = None,
) -> Built:
    """Build the mirror of a blend here, or find it.

    Args:
        blend: a YAML file.
        base: as in ``plan``, like ``variables``, ``env``, ``view``, ``allow``, ``compat``, ``packs``,
            ``sidecars``, ``tars`` and ``root``.
        on_bad: ``"exclude"`` leaves out entries with bad sources instead of failing.
        name: a name that shall point at the build.
        labels: to find the build by; they change nothing about it.

    Raises:
        BuildFailed: with all problems.
        BlendexError: the blend cannot be read at all.
    """
    site = _site(root)
    try:
        result = run_build(
            site,
            _submission(blend, base, variables, env, view, allow, compat, on_bad, packs, sidecars, tars, name, labels),
        )
    finally:
        site.work.engine.dispose()
    if result["state"] != "ready":
        raise BuildFailed(BlendexError.from_dict(result["error"]), result["problems"])
    return Built(
        build=result["id"],
        key=result["mirror"],
        path=Path(result["path"]),
        blend=Path(result["blend"]),
        sources=result["sources"],
        reused=result["reused"],
        excluded=tuple(result["excluded"]),
        packs=tuple(result["packs"] or ()),
    )


def resolve(what: str, *, root: str | os.PathLike[str] | None = None) -> Path:
    """The folder of a mirror, by its key, a build's id, or a name.

    Raises:
        BlendexError: not_found; wrong_state, while it is not ready or when it was collected.
    """
    site = _site(root)
    try:
        resolver = Resolver(site)
        if len(what) == 64 and HEX.issuperset(what):
            answer = resolver.mirror(what)
        else:
            answer = _by_build_or_name(resolver, what)
        answer = Uses(site).keep(answer)
    finally:
        site.work.engine.dispose()
    if answer.path is None or answer.state != "ready":
        raise BlendexError(
            Code.WRONG_STATE, f"{what} is {answer.state}.", next_step="Wait for it, or post its blend again."
        )
    return Path(answer.path)


def _by_build_or_name(resolver: Resolver, what: str) -> Answer:
    try:
        return resolver.build(what)
    except BlendexError as error:
        if error.code is not Code.NOT_FOUND or not NAME.fullmatch(what):
            raise
        return resolver.name(what)
