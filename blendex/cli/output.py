"""What commands print: JSON for programs, few lines and a progress bar for people. Results go to standard output."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from blendex.errors import BlendexError

PROBLEMS_SHOWN = 20


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")


def show(value: Any, as_json: bool, text: str) -> None:
    """JSON, or one text."""
    _write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() if as_json else text)


def error(error: BlendexError) -> int:
    """Print an error to standard error; the exit status."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"[red]{error.code}[/red]", end=" ")
    sys.stderr.write(f"{error}\n")
    return 1


@contextmanager
def progress(*, enabled: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A bar for a build on standard error, and a line for each wait; takes descriptions of the build."""
    told: set[str] = set()

    def waits(build: dict[str, Any]) -> str | None:
        """What is waited for, when it was not told yet."""
        awaits = build.get("awaits")
        line = waiting_line(awaits) if awaits else None
        if line is None or line in told:
            return None
        told.add(line)
        return line

    if not enabled or not sys.stderr.isatty():

        def plain(build: dict[str, Any]) -> None:
            if line := waits(build):
                sys.stderr.write(line + "\n")

        yield plain
        return
    columns = (
        TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TextColumn("sources"),
        TimeElapsedColumn(), TextColumn("{task.fields[eta]}"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("queued", total=None, eta="")

        def watch(build: dict[str, Any]) -> None:
            if line := waits(build):
                bar.console.print(line, highlight=False, markup=False)
            eta = build["eta_seconds"]
            bar.update(
                task,
                description=build["state"],
                total=build["sources"] or None,
                completed=build["done"],
                eta=f"about {eta:.0f} s left" if eta else "",
            )

        yield watch


@contextmanager
def counter(what: str, *, enabled: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A bar for something that counts ``done`` of ``total``."""
    if not enabled or not sys.stderr.isatty():
        yield lambda _: None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda data: bar.update(task, completed=data["done"], total=data["total"])


def waiting_line(awaits: dict[str, Any]) -> str:
    """What a build waits for, why, how long it will, and how to end it."""
    where = f" ({awaits['endpoint']})" if awaits["endpoint"] else ""
    left = max(0.0, awaits["patience_seconds"] - awaits["waited_seconds"])
    return (
        f"Waiting{where}: {awaits['message']} Trying for about {left:.0f} s more "
        "(--store-patience SECONDS); Ctrl-C stops, and what was read is kept."
    )


def problem_line(problem: dict[str, Any]) -> str:
    """One problem on one line: place, reason, next step."""
    place = problem.get("file") or ""
    if problem.get("line") is not None:
        place += f":{problem['line']}"
    elif problem.get("byte") is not None:
        place += f" at byte {problem['byte']}"
    inside = f" (in {problem['blend_file']}:{problem['blend_line']})" if "blend_file" in problem else ""
    return f"{place}{inside}: {problem['code']}: {problem['message']} {problem.get('next_step', '')}".rstrip()


def build_result(build: dict[str, Any], as_json: bool) -> None:
    """The end of a build: its path last, or why there is none (exit status 1)."""
    if as_json:
        show(build, True, "")
    else:
        for warning in build["warnings"]:
            sys.stderr.write(f"warning: {problem_line(warning)}\n")
        for problem in build["problems"][:PROBLEMS_SHOWN]:
            sys.stderr.write(f"{problem_line(problem)}\n")
        if build["problem_count"] > PROBLEMS_SHOWN:
            sys.stderr.write(
                f"… and {build['problem_count'] - PROBLEMS_SHOWN} more: builds show {build['id']} --json\n"
            )
    if build["state"] != "ready":
        if not as_json:
            sys.stderr.write(f"build {build['id']} {build['state']}\n")
            if build["state"] == "failed":
                sys.stderr.write(
                    f"Mend it and retry: blendex builds retry {build['id']}\n"
                    f"Or publish without the bad entries: blendex builds accept {build['id']} --why …\n"
                )
        raise SystemExit(1)
    if not as_json:
        sys.stderr.write(
            f"{build['sources']} sources, {build['reused']} known already, {build['opened']} read"
            f"{', ' + str(len(build['excluded'])) + ' entries excluded' if build['excluded'] else ''}\n"
            f"ready blend: {build['blend']}\n"
        )
        for item in build["packs"] or ():
            for reason in item.get("reasons", ()):
                sys.stderr.write(f"no pack of {item['dataset']}: {problem_line(reason)}\n")
            if "file" in item:
                needs = "".join(f", needs {key}={value}" for key, value in item.get("environment", {}).items())
                sys.stderr.write(f"pack of {item['dataset']}: {item['file']}, {item['sources']} sources{needs}\n")
        _write(build["path"])


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return ""


def _packs(packs: list[dict[str, Any]]) -> str:
    parts = [
        f"{item['dataset']} ({item['sources']} sources)"
        if "sources" in item
        else f"not {item['dataset']}: {item['reasons'][0]['message']}"
        for item in packs
    ]
    return "; ".join(parts)


def plan_result(plan: dict[str, Any], as_json: bool) -> None:
    """What a build would do; exit status 1 when it could not succeed."""
    if as_json:
        show(plan, True, "")
    else:
        for problem in plan["problems"][:PROBLEMS_SHOWN]:
            sys.stderr.write(f"{problem_line(problem)}\n")
        rows = (
            ("entries", plan["entries"]),
            ("sources", plan["sources"]),
            ("bytes", _size(plan["bytes"])),
            ("reused", plan["reused"]),
            ("to read", f"{plan['requests']} sources, about {_size(plan['read_bytes'])}"),
            ("packs", _packs(plan["packs"]) or "none"),
            ("again", f"{plan['read_again']} known sources, for what packs need to know of their records"),
            ("inodes", plan["inodes"]),
            ("memory", f"at most {plan['memory_mb']} MiB"),
            ("minutes", f"about {plan['minutes']}"),
            ("mirror", plan["path"] or "not there yet"),
            ("problems", len(plan["problems"])),
        )
        for name, value in rows:
            _write(f"{name:<9} {value}")
    if plan["problems"]:
        raise SystemExit(1)


def verify_result(result: dict[str, Any], as_json: bool) -> None:
    """The faults of a mirror; exit status 1 when there are some."""
    if as_json:
        show(result, True, "")
    else:
        for fault in result["faults"]:
            sys.stderr.write(f"{fault['path']} {fault['reason']}\n")
        for path in result["changed"]:
            sys.stderr.write(f"{path} is not what was indexed\n")
        if not result["faults"] and not result["changed"]:
            _write(f"{result['sources']} sidecars are what the receipt says")
    if result["faults"] or result["changed"]:
        raise SystemExit(1)


def inspection(found: dict[str, Any], as_json: bool) -> None:
    """What an index file holds; ends with status 1 when something in it is wrong."""
    if as_json:
        show(found, True, "")
    else:
        for name, value in found.items():
            if name not in ("faults", "collections") and value is not None:
                shown = ", ".join(f"{key} {part}" for key, part in value.items()) if isinstance(value, dict) else value
                _write(f"{name:<22} {shown}")
        if found.get("collections"):
            _table(
                ("kind", "holds", "sources", "records", "key", "from", "to"),
                [
                    (
                        item["kind"], item["holds"], item["sources"], item["records"], item["key"][:16],
                        item["first"] or "", item["last"] or "",
                    )
                    for item in found["collections"]
                ],
            )  # fmt: skip
        for fault in found["faults"]:
            _write(f"WRONG: {fault}")
        if not found["faults"]:
            _write("Nothing is wrong with it.")
    if found["faults"]:
        raise SystemExit(1)


def moment(seconds: float) -> str:
    """A time, for people."""
    return f"{_time(seconds)} UTC"


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _table(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """Columns as wide as what they hold: ids and keys must stay whole to be copied."""
    cells = [columns, *(tuple("" if value is None else str(value) for value in row) for row in rows)]
    widths = [max(len(row[number]) for row in cells) for number in range(len(columns))]
    for row in cells:
        _write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def builds(rows: list[dict[str, Any]], as_json: bool) -> None:
    """A list of builds."""
    if as_json:
        show(rows, True, "")
        return
    _table(
        ("id", "state", "sources", "created (UTC)", "names", "blend"),
        [
            (row["id"], row["state"], f"{row['done']}/{row['sources']}", _time(row["created_at"]),
             ",".join(row["names"]), row["file"])
            for row in rows
        ],
    )  # fmt: skip


def build_detail(build: dict[str, Any], as_json: bool) -> None:
    """One build."""
    if as_json:
        show(build, True, "")
        return
    for key in ("id", "state", "file", "sources", "done", "reused", "opened", "path", "blend"):
        _write(f"{key:<8} {build[key]}")
    if build["labels"]:
        _write(f"labels   {' '.join(f'{key}={value}' for key, value in build['labels'].items())}")
    for dataset in build["datasets"]:
        hours = "" if dataset["hours"] is None else f", {dataset['hours']:g} h"
        share = "" if dataset["share"] is None else f", {100 * dataset['share']:.3g} % of what is drawn"
        _write(f"dataset  {dataset['name']} ({dataset['type']}): {dataset['sources']} sources{hours}{share}")
    for item in build["excluded"]:
        _write(f"excluded {item['pointer']} by {item['by']}: {item['why']}")
    for problem in build["problems"]:
        _write(f"problem  {problem_line(problem)}")


def log(value: dict[str, Any], as_json: bool) -> None:
    """The log of a build, the newest line last."""
    if as_json:
        show(value, True, "")
        return
    for line in reversed(value["log"]):
        place = f": {line['file']}" if line.get("file") else ""
        _write(f"{_time(line['at'])}  {line['says']}{place}")


def verification(found: dict[str, Any], as_json: bool) -> None:
    """What came of verifying a mirror; exit status 1 when it is not whole."""
    if as_json:
        show(found, True, "")
    else:
        if found["error"]:
            sys.stderr.write(f"{problem_line(found['error'])}\n")
        for fault in found["faults"]:
            _write(f"DAMAGED {fault['path']}: {fault['reason']}")
        for path in found["changed"]:
            _write(f"changed {path}")
        _write(
            f"{found['state']}: {found['sources']} sources checked, {found['fault_count']} faults"
            + (f", {found['changed_count']} sources changed since" if found["with_sources"] else "")
        )
    if found["state"] != "whole":
        raise SystemExit(1)


def findings(report: dict[str, Any], as_json: bool) -> None:
    """What was found in the sources of a build."""
    if as_json:
        show(report, True, "")
        return
    for item in report["findings"]:
        allowed = ", allowed" if item["allowed"] else ""
        _write(f"{item['severity']:<7}{item['name']}: {item['count']} in {item['sources']} sources{allowed}")
        _write(f"       {item['effect']}")
        _write(f"       {item['remedy']}")
        for first in item["first"]:
            place = f" at byte {first['first']}" if "first" in first else ""
            rows = f" (rows {', '.join(map(str, first['places'][:5]))})" if first.get("places") else ""
            detail = f": {first['detail']}" if first.get("detail") else ""
            _write(f"         {first['path']}: {first['count']}{place}{rows}{detail}")
            if first["command"]:
                _write(f"           {first['command']}")
    for warning in report["warnings"]:
        _write(f"blend  {problem_line(warning)}")
    if report["not_compared"]:
        _write(f"{report['not_compared']} manifests were not compared with their tars: too many rows, or read before.")
    if not report["findings"] and not report["warnings"]:
        _write("Nothing was found.")


def mirrors(rows: list[dict[str, Any]], as_json: bool) -> None:
    """A list of mirrors."""
    if as_json:
        show(rows, True, "")
        return
    _table(
        ("key", "state", "sources", "records", "size", "created (UTC)"),
        [
            (row["key"], row["state"], row["sources"], row["records"], _size(row["sidecar_bytes"]),
             _time(row["created_at"]))
            for row in rows
        ],
    )  # fmt: skip


def names(rows: list[dict[str, Any]], as_json: bool) -> None:
    """A list of names."""
    if as_json:
        show(rows, True, "")
        return
    _table(
        ("name", "build", "since (UTC)", "path"),
        [(row["name"], row["build"], _time(row["updated_at"]), row["path"]) for row in rows],
    )


def pairs(value: dict[str, Any], as_json: bool) -> None:
    """One thing, a line per field."""
    if as_json:
        show(value, True, "")
        return
    for key, item in value.items():
        _write(f"{key:<14} {item}")


def tokens(rows: list[dict[str, Any]], as_json: bool) -> None:
    """A list of tokens."""
    if as_json:
        show(rows, True, "")
        return
    _table(
        ("id", "owner", "team", "scope", "label", "until (UTC)", "used (UTC)", "revoked (UTC)"),
        [
            (
                row["id"], row["owner"], row["team"], row["scope"], row["label"], _time(row["expires_at"]),
                _moment(row["used_at"]), _moment(row["revoked_at"]),
            )
            for row in rows
        ],
    )  # fmt: skip


def _moment(seconds: float | None) -> str:
    return "" if seconds is None else _time(seconds)


def teams(rows: list[dict[str, Any]], as_json: bool) -> None:
    """A list of teams."""
    if as_json:
        show(rows, True, "")
        return
    _table(
        ("team", "folders", "buckets", "views"),
        [
            (
                row["name"],
                " ".join(row["roots"]),
                " ".join(f"{name}={pattern}" for name, patterns in row["stores"].items() for pattern in patterns),
                " ".join(f"{seen}={real}" for seen, real in row["views"]),
            )
            for row in rows
        ],
    )


def deeds(rows: list[dict[str, Any]], as_json: bool) -> None:
    """What was changed."""
    if as_json:
        show(rows, True, "")
        return
    _table(
        ("id", "at (UTC)", "who", "team", "token", "did", "to", "from"),
        [
            (
                row["id"], _time(row["at"]), row["owner"], row["team"], row["token"], row["action"], row["object"],
                row["address"],
            )
            for row in rows
        ],
    )  # fmt: skip
