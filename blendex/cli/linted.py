"""What a lint has come to, on this machine or at a service; and how a service is asked."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from blendex.blend.discover import nested_files
from blendex.blend.load import Limits
from blendex.blend.world import World
from blendex.errors import BlendexError, Code
from blendex.storage.local import LocalStorage
from blendex.units.plan import FolderReader


@dataclass(frozen=True)
class Linted:
    """One config, linted.

    Args:
        answer: JSON, as ``POST /v1/lint`` has it.
        texts: of its files, as far as they are here.
        sarif: the SARIF, when it was asked for.
        folder: the files of the outputs folder, when they were asked for.
    """

    answer: dict[str, Any]
    texts: dict[str, str]
    sarif: dict[str, Any]
    folder: dict[str, str]

    @property
    def report(self) -> dict[str, Any]:
        """Of the config."""
        report: dict[str, Any] = self.answer["reports"][0]
        return report


def together(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several answers as one."""
    reports = [report for item in answers for report in item["reports"]]
    return answers[0] | {"ready": all(item["ready"] for item in answers), "reports": reports}


def one_run(logs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several SARIF logs as one with one run: the rules are the same in all."""
    run = logs[0]["runs"][0] | {"results": [result for log in logs for result in log["runs"][0]["results"]]}
    return logs[0] | {"runs": [run]}


def read(path: Path, what: str) -> bytes:
    """A file that an option names.

    Raises:
        BlendexError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise BlendexError(
            Code.NESTED_MISSING,
            f"{what} cannot be read ({error.strerror}).",
            file=str(path),
            next_step="Check the path.",
        ) from None


def more_than_json(form: str, out: Path | None) -> tuple[str, ...]:
    """What has to be made besides the JSON: ``sarif``, ``zip``."""
    return (*(("sarif",) if form == "sarif" else ()), *(("zip",) if out is not None else ()))


def there(
    server: str,
    path: Path,
    world: World,
    launcher: Path | None,
    facts: Path | None,
    baseline: Path | None,
    upstream: str,
    more: Sequence[str],
) -> Linted:
    """Have a service lint one file: it knows the sources that it may read, its catalog and its mirrors.

    Args:
        server: its address.
        path: of the config; nested blends below the base travel with it.
        world: what relative paths, variables and environment values mean.
        launcher: the script that starts training.
        facts: JSON.
        baseline: findings that may stand.
        upstream: the profile.
        more: other outputs that are wanted: ``sarif``, ``zip``.

    Raises:
        BlendexError: what the service answers; the config lies outside of the base.
    """
    from blendex.cli.remote import RemoteClient

    file, text = os.path.abspath(path), read(path, "the config")
    limits = Limits()
    reader = FolderReader(LocalStorage(("/",)), {}, limits.bytes)
    nested = nested_files(text, file, world, reader, limits)
    parts = [("config", (_below(world, file), text))]
    parts += [
        ("blend", (_below(world, name), blend)) for name, blend in nested.items() if name.startswith(f"{world.base}/")
    ]
    for name, option in (("launcher", launcher), ("facts", facts), ("baseline", baseline)):
        if option is not None:
            parts.append((name, (option.name, read(option, f"the {name}"))))
    with closing(RemoteClient(server)) as client:
        answer = orjson.loads(client.lint(parts, world, upstream, "json"))
        others = {name: client.lint(parts, world, upstream, name) for name in more}
    texts = {name: content.decode("utf-8", "replace") for name, content in ({file: text} | nested).items()}
    log = orjson.loads(others["sarif"]) if "sarif" in others else {}
    return Linted(answer, texts, log, _unzipped(others["zip"]) if "zip" in others else {})


def _below(world: World, file: str) -> str:
    relative = os.path.relpath(file, world.base)
    if relative.startswith(".."):
        raise BlendexError(
            Code.BAD_REQUEST,
            "a service is sent files below the base folder, and this one lies elsewhere.",
            file=file,
            next_step="Say --base-dir with a folder above it, or lint without --server.",
        )
    return relative


def _unzipped(data: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {os.path.basename(name): archive.read(name).decode() for name in archive.namelist()}
