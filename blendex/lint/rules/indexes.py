"""Where indexes lie, and whether they are good."""

from __future__ import annotations

from collections.abc import Iterator

from blendex.blend.model import Source
from blendex.lint.context import Context
from blendex.lint.model import Severity
from blendex.lint.rule import CODE, NOTES, OURS, Example, Hit, at, on, rule
from blendex.lint.rules.packs import in_pack, judged
from blendex.lint.scopes import Around, Entry, Setting, once
from blendex.storage.interface import Stat

NODE_LOCAL = ("/tmp", "/var/tmp", "/dev/shm", "/raid", "/scratch", "/local", "/localscratch", "/mnt/local", "/nvme")  # noqa: S108
# Of each entry so many sidecars are opened; a look at more would take longer than a person waits.
_MOST_LOOKED_AT = 200_000


def _config(root: str, rest: str = "") -> str:
    return (
        f"train_ds:\n  indexed: true\n  indexes_root: {root}\n"
        f"  input_cfg: [{{type: nemo, manifest_filepath: /d/a.json{rest}}}]\n"
    )


def roots(context: Context) -> Iterator[Setting]:
    """Every written ``indexes_root``, once."""
    of_entries = (setting for setting, _ in context.settings("indexes_root"))
    settings = once((*(part.get("indexes_root") for part in context.sections), *of_entries))
    return (setting for setting in settings if setting.written)


def node_local(context: Context, path: str) -> bool | None:
    """Whether each node has a folder for itself; None when nobody has said."""
    best = max((mount for mount in context.facts.mounts if _under(path, mount)), key=len, default=None)
    if best is not None:
        return context.facts.mounts[best].lower() in ("node-local", "tmpfs", "ext4", "xfs", "overlay", "nvme")
    return True if any(_under(path, prefix) for prefix in NODE_LOCAL) else None


def _under(path: str, folder: str) -> bool:
    folder = folder.rstrip("/")
    return path == folder or path.startswith(folder + "/")


@rule(
    "IDX034", Severity.ERROR,
    title="Indexes lie where every node finds them", where="indexes_root",
    why="A folder of one node is empty on the next one, unless the launcher fills it before every chunk.",
    otherwise="Indexes are missing at the start of a chunk.",
    source=NOTES,
    example=Example(
        bad=_config("/raid/idx"), good=_config("/raid/idx"),
        launcher="srun python train.py\n",
        good_launcher="rsync -a /lustre/mirror/idx/ /raid/idx/\nsrun python train.py data.x=1\n",
    ),
)  # fmt: skip
def on_one_node(context: Context) -> Iterator[Hit]:
    """``indexes_root`` is node-local and nothing stages it."""
    for setting in roots(context):
        path = setting.value
        if not isinstance(path, str) or not path.startswith("/") or node_local(context, path) is not True:
            continue
        steps = context.launcher.steps if context.launcher is not None else []
        if any(
            step.target.startswith("/") and (_under(path, step.target) or _under(step.target, path)) for step in steps
        ):
            continue
        yield at(
            setting, f"{path[:200]} belongs to one node, and "
            + ("the launcher does not fill it." if context.launcher is not None else "no launcher says "
                                                                                     "that it is filled."),
            wanted="a folder that all nodes share",
            fix="Point it at a mirror on a shared filesystem, or give the launcher that fills it before every chunk.",
        )  # fmt: skip


@rule(
    "IDX035",
    Severity.ERROR,
    title="indexes_root is an absolute folder",
    where="indexes_root",
    why="`/` and an empty root give relative paths, `~` is not expanded, a relative one means another "
    "folder elsewhere.",
    otherwise="Indexes are looked for where they are not.",
    source=f"{OURS}; lhotse 2.0.0a7, index_file_path",
    example=Example(bad=_config("~/idx"), good=_config("/lustre/idx")),
)
def absolute(context: Context) -> Iterator[Hit]:
    """``indexes_root`` is ``/``, empty, relative, begins with ``~``, or cannot be resolved."""
    for setting in roots(context):
        value = setting.value
        if not setting.known:
            yield at(setting, "The interpolation of indexes_root cannot be resolved.", wanted="an absolute folder",
                     fix="Pass its variable along (--var, --env), or write the folder.")  # fmt: skip
        elif value is not None and (
            not isinstance(value, str) or ("://" not in value and (not value.startswith("/") or not value.strip("/")))
        ):
            yield at(
                setting, "indexes_root is not an absolute folder.", wanted="an absolute folder", fix="Write it in full."
            )


@rule(
    "IDX036",
    Severity.WARNING,
    title="Entries do not leave the mirror unseen",
    where="entry.indexes_root",
    why="An explicit null means: beside the source.",
    otherwise="The indexes of this entry are looked for outside of the mirror.",
    source=f"{OURS}; {CODE}, build_indexes.py",
    example=Example(bad=_config("/i", ", indexes_root: null"), good=_config("/i")),
)
def null_root(context: Context) -> Iterator[Hit]:
    """An entry sets ``indexes_root`` to null."""
    for own in once(_own_roots(context)):
        if own.known and own.value is None:
            yield at(own, "null takes the entry out of the mirror.", fix="Remove the key, or name a folder.")


def _own_roots(context: Context) -> Iterator[Setting | None]:
    """What entries and the groups around them say themselves, the groups of one list once."""
    met: set[Around] = set()
    for entry in context.entries:
        if entry.classic:
            continue
        yield entry.own("indexes_root")
        if entry.around not in met:
            met.add(entry.around)
            yield from (scope.own("indexes_root") for scope in entry.above)


Found = tuple[Entry, str | None, list[str], list[tuple[str, str]]]


def sidecars(context: Context) -> list[Found]:
    """For each entry read by loose indexes: its root, sources whose sidecar is missing, and sidecars that are bad."""
    if "sidecars" not in context.memory:
        context.memory["sidecars"] = list(_look(context))
    found: list[Found] = context.memory["sidecars"]
    return found


def _look(context: Context) -> Iterator[Found]:
    looked = 0
    chosen: list[tuple[Entry, str | None, list[tuple[str, Source]]]] = []
    for entry in context.entries:
        if not _looked_for(entry):
            continue
        setting = entry.get("indexes_root")
        root = setting.value
        if not setting.known or not (root is None or isinstance(root, str)):
            continue
        looked += len(entry.sources)
        if looked > _MOST_LOOKED_AT:
            context.unknown(f"the sidecars of {entry.name} and after it", "a build, which verifies all of them")
            break
        places = ((context.lookups.index_of(source, root), source) for source in entry.sources)
        chosen.append((entry, root, [(place, source) for place, source in places if place is not None]))
    context.lookups.prepare([pair for _, _, pairs in chosen for pair in pairs])
    for entry, base, pairs in chosen:
        yield _entry(context, entry, base, pairs)


def _looked_for(entry: Entry) -> bool:
    """Whether training reads an entry by loose indexes."""
    return (
        entry.section is not None
        and entry.section.role != "blend"
        and bool(entry.sources)
        and entry.get("indexed").value is True
        and entry.get("index_pack").value is None
    )


def _entry(context: Context, entry: Entry, root: str | None, pairs: list[tuple[str, Source]]) -> Found:
    missing: list[str] = []
    bad: list[tuple[str, str]] = []
    unknown = 0
    for side, source in pairs:
        state = context.lookups.sidecar(side, source)
        if state is None:
            unknown += 1
        elif state.missing:
            missing.append(source.path)
        elif state.wrong:
            bad.append((source.path, state.wrong))
        elif source.kind != "sharegpt_route" and not isinstance(context.lookups.stat(source.path), Stat):
            unknown += 1
    if unknown:
        context.unknown(
            f"{unknown:,} sidecars of {entry.name}, or whether they fit their sources",
            "a look at the folder of indexes and at the sources",
        )
    return entry, root, missing, bad


@rule(
    "IDX055", Severity.ERROR,
    title="Indexes are as new as their sources", where="sidecars of indexed sections",
    why="Readers take any file of the right shape: only size, times and order tell that it is stale.",
    otherwise="Records are cut at wrong places in silence.",
    source=f"{OURS}; {CODE}, build_indexes.py (_is_indexed); lhotse 2.0.0a7, index_exists",
    example=Example(
        bad=_config("/i"), good=_config("/j"),
        nested={"/d/a.json": '{"a": 1}\n', "/i/d/a.json.idx": "\0\0\0\0\0\0\0\0\a\0\0\0\0\0\0\0",
                "/j/d/a.json.idx": "\0\0\0\0\0\0\0\0\t\0\0\0\0\0\0\0"},
    ),
)  # fmt: skip
def stale(context: Context) -> Iterator[Hit]:
    """A sidecar, or a pack, does not fit its sources."""
    for entry, _, why in judged(context):
        if why:
            yield in_pack(entry, f"The pack is stale: {why}.", "Build it again.")
    for entry, _, _, bad in sidecars(context):
        if bad:
            path, why = bad[0]
            yield on(
                entry, f"{len(bad):,} of {len(entry.sources):,} indexes are stale or broken; of {path[:200]}: {why}.",
                value=why, fix="Build them again: a mirror of Blendex is made whole or not at all.",
            )  # fmt: skip


@rule(
    "IDX107",
    Severity.ERROR,
    title="Every source has its index where training looks",
    where="all sources of indexed sections",
    why="Most readers build what is missing on the spot, each rank for itself; some refuse.",
    otherwise="A slow start in which ranks race each other, or none at all.",
    source=f"{NOTES}; lhotse 2.0.0a7, index_exists",
    example=Example(
        bad="train_ds:\n  indexed: true\n  indexes_root: /i\n  input_cfg: [{type: nemo, manifest_filepath: "
        "/d/a.json}]\n",
        good="train_ds:\n  indexed: true\n  indexes_root: /j\n  input_cfg: [{type: nemo, "
        "manifest_filepath: /d/a.json}]\n",
        nested={"/d/a.json": '{"a": 1}\n', "/j/d/a.json.idx": "\0\0\0\0\0\0\0\0\t\0\0\0\0\0\0\0"},
    ),
)
def sidecars_there(context: Context) -> Iterator[Hit]:
    """A sidecar is not there. Whether those that are there are good is IDX055."""
    for entry, root, missing, _ in sidecars(context):
        if missing:
            yield on(
                entry, f"{len(missing):,} of {len(entry.sources):,} sources have no index under "
                f"{root or 'their own folders'}, such as {missing[0][:200]}.",
                value="missing", fix="Build a mirror (build-indexes-cmd.sh) and point indexes_root at its idx folder.",
            )  # fmt: skip
