"""The folder that a migration leaves: report, patched files, checklist, and the command that builds the indexes."""

from __future__ import annotations

import io
import posixpath
import shlex
import zipfile
from collections.abc import Iterator
from urllib.parse import urlencode

from blendex.lint.migrate import Migration, link, resumable, side_by_side
from blendex.lint.model import Finding, Report, Severity
from blendex.lint.rule import RULES
from blendex.lint.text import blocking, clean

_HEADS = {
    Severity.FATAL: "Fatal: no patch can mend it",
    Severity.ERROR: "Errors",
    Severity.WARNING: "Warnings",
    Severity.NOTE: "Notes",
}
_SETTINGS = (
    ("indexed", True), ("use_stateful_dataloader", True), ("force_map_dataset", False), ("force_finite", False),
    ("concurrent_bucketing", False), ("seed", "a number"), ("shard_seed", "a number"),
    ("indexes_root", "a mirror"),
    ("num_workers", "the same always"),
)  # fmt: skip


def folder(migration: Migration) -> dict[str, str]:
    """The files of the folder, by name."""
    patched = side_by_side(migration)
    return {
        "migration-report.md": "\n".join(_report(migration, patched)) + "\n",
        **patched,
        "pre-flight-checklist.md": "\n".join(_checklist(migration)) + "\n",
        "build-indexes-cmd.sh": build_command(migration),
    }


def zipped(files: dict[str, str]) -> bytes:
    """The same in one zip; two of the same folder are the same bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            member = zipfile.ZipInfo(name)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = (0o755 if name.endswith(".sh") else 0o644) << 16
            archive.writestr(member, text)
    return stream.getvalue()


def _cell(text: str) -> str:
    return clean(text).replace("|", "\\|").replace("`", "'")


def _report(migration: Migration, patched: dict[str, str]) -> Iterator[str]:
    report, after = migration.report, migration.after
    yield f"# Migration report: {_cell(posixpath.basename(report.file))}"
    yield ""
    yield "| | as it is | with the patch |"
    yield "|---|---|---|"
    yield f"| launch-ready | {_ready(report)} | {_ready(after)} |"
    for level in Severity:
        yield f"| {level} | {report.counts()[str(level)]} | {after.counts()[str(level)]} |"
    yield ""
    yield (
        f"{report.entries:,} entries name {report.sources:,} sources. Held against upstream `{report.profile}`. "
        f"Patched: {len(migration.changes)} fields in {len(migration.texts)} files. "
        f"Not checked for want of facts: {len(report.unchecked)}."
    )
    yield ""
    if after.blockers:
        yield "What blocks a launch, after the patch:"
        yield ""
        for item in after.blockers:
            yield f"* **{item.rule}** `{_cell(item.field)}`: {_cell(item.message)} {_cell(item.fix)}"
        yield ""
    yield from _exceptions(report)
    for level in Severity:
        yield from _findings(migration, level)
    yield from _modes(migration)
    yield from _blend(report)
    yield from _launcher(migration)
    yield from _storage(report)
    yield from _unchecked(report)
    yield from _diffs(migration, patched)


def _ready(report: Report) -> str:
    if report.ready:
        return f"yes, with {len(report.exceptions)} exceptions" if report.exceptions else "yes"
    return f"no: {blocking(item.rule for item in report.blockers)}"


def _exceptions(report: Report) -> Iterator[str]:
    if not report.exceptions:
        return
    yield "## Exceptions"
    yield ""
    yield "| rule | field | reason | expected cost | until |"
    yield "|---|---|---|---|---|"
    for item in report.exceptions:
        kept = item.suppressed
        assert kept is not None
        until = kept.until.isoformat() if kept.until else "open"
        yield (
            f"| {item.rule} | `{_cell(item.field)}` | {_cell(kept.reason)} | "
            f"{_cell(kept.cost) or 'not told'} | "
            f"{until} |"
        )
    yield ""


def _findings(migration: Migration, level: Severity) -> Iterator[str]:
    found = [item for item in migration.report.findings if item.severity is level and item.suppressed is None]
    if not found:
        return
    yield f"## {_HEADS[level]}"
    yield ""
    for item in found:
        rule = RULES[item.rule]
        yield (
            f"* **{item.rule}** `{_cell(item.field)}` "
            f"({_cell(posixpath.basename(item.file))}:{item.line}): "
            f"{_cell(item.message)}"
        )
        if item.value or item.wanted:
            yield f"  * now `{_cell(item.value) or 'not set'}`, wanted `{_cell(item.wanted) or 'see below'}`"
        yield f"  * why: {rule.why} Otherwise: {rule.otherwise}"
        yield f"  * {_state(migration, item)}"
        yield f"  * {rule.source}; {link(item.rule)}"
    yield ""


def _state(migration: Migration, item: Finding) -> str:
    if item in migration.refused:
        return f"not patched: {migration.refused[item]}. {_cell(item.fix)}"
    return "patched" if item.edits else _cell(item.fix)


def _modes(migration: Migration) -> Iterator[str]:
    yield "## Training and validation"
    yield ""
    if not migration.report.settings:
        yield "The file is a blend without a training config; what training does with it was not judged."
        yield ""
        return
    for name, section in migration.report.settings.items():
        new = migration.after.settings.get(name, section)
        yield f"`{_cell(name)}` ({section['role']}, {section['entries']} entries):"
        yield ""
        yield "| field | now | after the patch | wanted |"
        yield "|---|---|---|---|"
        for key, wanted in _SETTINGS:
            if section["role"] == "eval" and key in ("force_map_dataset", "force_finite"):
                wanted = True  # noqa: PLW2901
            elif section["role"] == "eval" and key != "indexes_root":
                continue
            yield f"| {key} | {_field(section, key)} | {_field(new, key)} | {str(wanted).lower()} |"
        yield ""


def _field(section: dict[str, object], key: str) -> str:
    fields = section["fields"]
    assert isinstance(fields, dict)
    item = fields[key]
    if not item["known"]:
        return "unknown"
    value = _cell(str(item["value"]).lower() if isinstance(item["value"], bool) else str(item["value"]))
    return value if item["written"] else f"not set ({value})"


def _blend(report: Report) -> Iterator[str]:
    yield "## The blend"
    yield ""
    barred = [item for item in report.findings if RULES[item.rule].blend and item.severity is Severity.FATAL]
    if not barred:
        yield "Nothing in the blend stands against indexing."
    else:
        yield "| entry | reason | what to do |"
        yield "|---|---|---|"
        for item in barred:
            yield f"| `{_cell(item.field)}` | {_cell(item.message)} | {_cell(item.fix)} |"
    yield ""


def _launcher(migration: Migration) -> Iterator[str]:
    yield "## The launcher"
    yield ""
    launcher = migration.context.launcher
    if launcher is None:
        yield "None was given; seeds, workers, ranks and staging of a chunk were not judged."
        yield ""
        return
    yield f"`{_cell(launcher.file)}`, read as {launcher.language}; nothing was run."
    yield ""
    found = {item.rule for item in migration.report.findings if item.suppressed is None}
    for rule, what in (
        ("IDX038", "one seed for the chain"), ("IDX037", "workers and ranks stay the same"),
        ("IDX103", "max_steps stays the same"), ("IDX034", "indexes lie where every node finds them"),
        ("IDX104", "staging is seen"), ("IDX050", "nobody sets LHOTSE_USE_WORKER_PARTITION"),
    ):  # fmt: skip
        yield f"* {what}: {f'no, see {rule}' if rule in found else 'nothing speaks against it'}"
    if launcher.image is not None:
        yield (
            f"* container image: `{_cell(launcher.image.value)}` (line {launcher.image.line}); what is in "
            "it is not "
            ""
            ""
            "known"
        )
    for hook in launcher.hooks:
        yield f"* container option: `{_cell(hook.value)}` (line {hook.line})"
    for step in launcher.steps:
        yield f"* staging: `{_cell(step.command)}` (line {step.line}) to `{_cell(step.target) or 'unknown'}`"
    yield ""


def _storage(report: Report) -> Iterator[str]:
    yield "## Storage"
    yield ""
    if report.remote:
        yield (
            "Sources lie in an object store: training needs AIS_ENDPOINT, the SDK aistore, and "
            "USE_AIS_GET_BATCH=true for "
            "audio. Indexes lie on a filesystem, and so should manifests."
        )
    else:
        yield "All sources are files. Indexes lie on a filesystem that every node shares."
    yield ""


def _unchecked(report: Report) -> Iterator[str]:
    yield "## Not checked"
    yield ""
    if not report.unchecked:
        yield "Nothing was left out."
    for item in report.unchecked:
        yield f"* {item.rule}: {_cell(item.what)}. It takes {_cell(item.needs)}."
    yield ""


def _diffs(migration: Migration, patched: dict[str, str]) -> Iterator[str]:
    yield "## The patch"
    yield ""
    for name, text in migration.diffs().items():
        yield f"`{_cell(posixpath.basename(name))}` → `{_cell(resumable(name))}`"
        yield ""
        fence = "`" * max(3, 1 + max((len(run) for run in text.split() if set(run) == {"`"}), default=0))
        yield f"{fence}diff"
        yield text.rstrip("\n")
        yield fence
        yield ""
    if not migration.texts:
        yield "Nothing was patched."
        yield ""
    if len(patched) > 1:
        yield "In this folder the config names the blends beside it; those that were not patched are as they were."
        yield ""


def _checklist(migration: Migration) -> Iterator[str]:
    report, after = migration.report, migration.after
    config = resumable(report.file)
    stem = config.rpartition(".")[0]
    yield f"# Before {_cell(config)} is launched"
    yield ""
    yield "## Mend"
    yield ""
    for item in after.blockers:
        yield f"- [ ] {item.rule} `{_cell(item.field)}`: {_cell(item.message)} {_cell(item.fix)}"
    if not after.blockers:
        yield "- [x] Nothing that was judged blocks a launch."
    yield ""
    yield "## Make sure"
    yield ""
    yield (
        "- [ ] The mirror is built (`sh build-indexes-cmd.sh`), and `indexes_root` is its `idx` folder, "
        "or the ready blend "
        ""
        "is "
        "trained."
    )
    yield "- [ ] Every node sees the mirror at that path: `srun --ntasks-per-node=1 test -e MIRROR/READY`"
    for unknown in report.unchecked:
        yield f"- [ ] {unknown.rule}: {_cell(unknown.what)}"
    yield ""
    yield "## The ladder"
    yield ""
    yield (
        "Each step before the next one. `TRAIN` is your training script; keep the seeds and `num_workers` as they are."
    )
    yield ""
    base = f'--config-path="$PWD" --config-name={shlex.quote(stem)}'
    yield "1. One node, one chunk:"
    yield ""
    yield f"       torchrun --nproc-per-node=8 TRAIN {base} trainer.num_nodes=1 trainer.max_steps=200"
    yield ""
    yield "   It has to reach step 200 and to leave a checkpoint."
    yield (
        "2. One node, resumed: stop a second run by `kill -TERM` after its first checkpoint, start it "
        "again with the same "
        ""
        ""
        "command,"
    )
    yield "   and compare its loss from there on with that of step 1: equal to the last digit."
    yield ""
    yield (
        f"       torchrun --nproc-per-node=8 TRAIN {base} trainer.num_nodes=1 trainer.max_steps=200 "
        "exp_manager.name=resumed"
    )
    yield ""
    yield "3. All nodes: two short chunks through the launcher that the real chain will use."
    yield ""
    yield "       sbatch --time=00:20:00 LAUNCHER && sbatch --dependency=singleton --time=00:20:00 LAUNCHER"


def build_command(migration: Migration) -> str:
    """A POSIX script that has the indexes built by a service, or by upstream's own scripts."""
    report, world = migration.report, migration.world
    main = report.file
    nested = [name for name in report.files if name != main]
    folder_name = posixpath.dirname(main) or "."
    beside = [name for name in nested if name.startswith(folder_name + "/")]
    query = [("base", world.base)] if world.base else []
    query += [("var", f"{name}={value}") for name, value in world.variables.items()]
    query += [("view", f"{seen}={real}") for seen, real in world.view]
    relative = [posixpath.relpath(name, folder_name) for name in [main, *beside]] if main.startswith("/") else [main]
    as_tar = len(relative) > 1
    if as_tar:
        query.append(("main", relative[0]))
    address = '"$BLENDEX_URL"' + shlex.quote(f"/v1/builds?{urlencode(query)}" if query else "/v1/builds")
    lines = [
        "#!/bin/sh",
        "# Has the indexes built: by a Blendex service when BLENDEX_URL is set, else by upstream's own scripts.",
        "# The last line of the output is the mirror; its folder idx is what indexes_root shall be.",
        "set -eu",
        "",
        'if [ -n "${BLENDEX_URL:-}" ]; then',
    ]
    if world.env:
        lines.append(
            f"    # ${{oc.env:…}} sees nothing by itself: add env=NAME%3DVALUE for {', '.join(sorted(world.env))}."
        )
    send = f"curl --fail-with-body -sS --retry 5 -H 'Accept: text/plain' {address}"
    if as_tar:
        files = " ".join(shlex.quote(name) for name in relative)
        lines.append(f"    tar -C {shlex.quote(folder_name)} -cf - -- {files} |")
        lines.append(f"        {send} -H 'Content-Type: application/x-tar' --data-binary @-")
    else:
        lines.append(f"    {send} -H 'Content-Type: application/yaml' --data-binary @{shlex.quote(main)}")
    data_dir = world.variables.get("data_blend_dir")
    blends = nested or [main]
    lines += [
        "else",
        '    : "${NEMO:?set NEMO to a checkout of NeMo Speech, or BLENDEX_URL to a Blendex service}"',
        '    : "${INDEXES_ROOT:?set INDEXES_ROOT to the folder for indexes, on a filesystem that all nodes share}"',
        '    python "$NEMO/scripts/dataloading/build_indexes.py" --indexes-root "$INDEXES_ROOT" --workers '
        '"${WORKERS:-4}" \\',
    ]
    if data_dir is not None:
        lines.append(f"        --data-blend-dir {shlex.quote(data_dir)} \\")
    lines.append("        " + " ".join(shlex.quote(name) for name in blends))
    lines += ['    echo "$INDEXES_ROOT"', "fi"]
    return "\n".join(lines) + "\n"
