"""Sources in object stores, and the variables that their readers obey."""

from __future__ import annotations

from collections.abc import Iterator

from blendex.lint.context import Context
from blendex.lint.model import Severity
from blendex.lint.rule import NOTES, Example, Hit, in_launcher, on, rule
from blendex.lint.rules.examples import listing

_REMOTE = listing(
    '- {type: nemo_tarred, manifest_filepath: /d/manifest_0.json, tarred_audio_filepaths: "s3://b/audio_0.tar"}'
)
_LOCAL = listing("- {type: nemo_tarred, manifest_filepath: /d/manifest_0.json, tarred_audio_filepaths: /d/audio_0.tar}")


def _place(context: Context, name: str, message: str, value: str, wanted: str, fix: str) -> Iterator[Hit]:
    """At the launcher's line, else at the first section."""
    launcher = context.launcher
    if launcher is not None:
        line = launcher.environment[name].line if name in launcher.environment else (launcher.trains or [1])[0]
        yield in_launcher(context, line, message, field=f"environment.{name}", value=value, wanted=wanted, fix=fix)
        return
    part = next(iter(context.training or context.sections), None)
    scope = part if part is not None else (context.entries[0] if context.entries else None)
    if scope is not None:
        yield on(scope, message, value=value, wanted=wanted, fix=fix)


def _tars_remote(context: Context) -> bool:
    return any("://" in source.path and source.kind != "jsonl" for source in context.sources)


@rule(
    "IDX046", Severity.WARNING,
    title="Remote audio is fetched by batch", where="environment: USE_AIS_GET_BATCH",
    why="Without it a reader for every remote tar is made at the start.",
    otherwise="A start that takes hours with many shards.",
    source=NOTES,
    example=Example(bad=_REMOTE, good=_REMOTE, facts={"environment": {}},
                    good_facts={"environment": {"USE_AIS_GET_BATCH": "true"}}),
)  # fmt: skip
def by_batch(context: Context) -> Iterator[Hit]:
    """Tars are remote and the variable is not true."""
    if not _tars_remote(context):
        return
    value, known = context.variable("USE_AIS_GET_BATCH")
    if not known and context.launcher is None:
        context.unknown(
            "USE_AIS_GET_BATCH, which remote audio wants to be true", "environment in the facts, or the launcher"
        )
    elif not context.is_true("USE_AIS_GET_BATCH"):
        message = "Audio is remote, and USE_AIS_GET_BATCH is not true."
        if value in ("1", "yes", "on"):
            message += " No other word counts."
        if context.is_true("USE_AIS_INDIVIDUAL_GETS"):
            message += " USE_AIS_INDIVIDUAL_GETS=true means nothing without it."
        yield from _place(
            context, "USE_AIS_GET_BATCH", message, value or "not set", "true",
            "export USE_AIS_GET_BATCH=true; where batches come back empty, USE_AIS_INDIVIDUAL_GETS=true beside it.",
        )  # fmt: skip


@rule(
    "IDX047", Severity.ERROR,
    title="Object stores can be reached", where="environment: AIS_ENDPOINT; package aistore",
    why="Without endpoint or SDK a URL goes to a backend that cannot seek, or to plain open().",
    otherwise="The run ends: no such file, or no seek.",
    source=NOTES,
    example=Example(bad=_REMOTE, good=_REMOTE, facts={"environment": {}, "versions": {}},
                    good_facts={"environment": {"AIS_ENDPOINT": "http://ais:51080"}, "versions": {"aistore": "1.26"}}),
)  # fmt: skip
def reachable(context: Context) -> Iterator[Hit]:
    """Sources are remote and the endpoint or the SDK is missing."""
    if not context.remote:
        return
    value, known = context.variable("AIS_ENDPOINT")
    if not known:
        context.unknown(
            "AIS_ENDPOINT, which remote sources need", "environment in the facts, or a line of the launcher"
        )
    elif not value:
        yield from _place(context, "AIS_ENDPOINT", "Sources are remote, and AIS_ENDPOINT is not set.", "not set",
                          "the address of the proxy", "Export it to every process that reads.")  # fmt: skip
    if context.facts.versions is None:
        context.unknown("whether the SDK aistore is installed", "versions in the facts")
    elif "aistore" not in context.facts.versions:
        yield from _place(context, "aistore", "Sources are remote, and the SDK aistore is not "
                                              "installed.", "not installed",
                          "installed", "Install aistore in the image of builds and of training.")  # fmt: skip


@rule(
    "IDX048", Severity.WARNING,
    title="No batch fetching for local data", where="environment: USE_AIS_GET_BATCH",
    why="It changes how tars are read, for nothing.",
    otherwise="Slower reads; an error where no store answers.",
    source=NOTES,
    example=Example(bad=_LOCAL, good=_LOCAL, facts={"environment": {"USE_AIS_GET_BATCH": "true"}},
                    good_facts={"environment": {}}),
)  # fmt: skip
def needless(context: Context) -> Iterator[Hit]:
    """Everything is local and the variable is true."""
    if context.remote or not context.any_sources:
        return
    value, known = context.variable("USE_AIS_GET_BATCH")
    if not known:
        context.unknown(
            "USE_AIS_GET_BATCH, which local data does not want", "environment in the facts, or the launcher"
        )
    elif context.is_true("USE_AIS_GET_BATCH"):
        yield from _place(context, "USE_AIS_GET_BATCH", "All sources are local, and USE_AIS_GET_BATCH is true.",
                          value or "", "not set", "Remove it.")  # fmt: skip


@rule(
    "IDX049",
    Severity.NOTE,
    title="Manifests lie on a filesystem",
    where="manifests in object stores",
    why="Random access to rows of an object is slow: a request for each.",
    otherwise="Batches wait for manifests.",
    source=NOTES,
    example=Example(
        bad=listing("- {type: lhotse, cuts_path: s3://b/c.jsonl}"),
        good=listing("- {type: lhotse, cuts_path: /d/c.jsonl}"),
    ),
)
def remote_lines(context: Context) -> Iterator[Hit]:
    """JSON lines are remote."""
    told = None
    for entry, spec in context.odd_paths:
        if entry is told or "://" not in spec.text or spec.form != "jsonl" or spec.text.startswith("pipe:"):
            continue
        told = entry
        yield on(entry, "JSON lines are read from an object store, row by row.", key=spec.key, value=spec.text[:200],
                 fix="Keep a copy on a shared filesystem, beside the remote audio.")  # fmt: skip
