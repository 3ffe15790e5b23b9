"""Cross checks: hold the sources of a build against each other, from the facts in their bundles.

No source is read again. What is found depends on the sources and on which of them the blend puts side by side, so it
is kept beside the mirror's receipt under a digest of both, and the same blend again finds it there.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Iterable
from typing import Any, BinaryIO

import orjson

from blendex.blend.index_path import sidecar_files
from blendex.errors import BlendexError
from blendex.formats.crosscheck import Notes, compare, judge_sidecar, tar_numbers
from blendex.formats.kinds import KINDS
from blendex.formats.learned import Members, members_of, rows_of
from blendex.storage.root import Root, replace
from blendex.storage.stores import open_stores
from blendex.units.facts import Facts
from blendex.units.job import job_line
from blendex.units.receipt import dumps

# A larger .idx beside a source is not compared: a child that publishes has 256 MiB.
_MAX_SIDECAR = 24 << 20
# Rows and members of one comparison: about 250 bytes each.
_MAX_NAMES = 300_000


def check(root: Root, arguments: dict[str, Any], job_path: str) -> dict[str, Any]:
    """What the cross checks of a build find, made now or found from an earlier build of the same.

    Args:
        root: where bundles and receipts are.
        arguments: of staging: key, attempt, roots, stat_threads, roles (for each leaf, runs of line numbers of
            the job).
        job_path: the job.

    Returns:
        sources ([{kind, path, findings}, …]), compared, not_compared (how many pairs of manifest and tars).
    """
    # The key stands for the lines of the job, so line numbers say which sources stand side by side.
    digest = hashlib.sha256(orjson.dumps(arguments["roles"], option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
    kept = root.cross_checks(arguments["key"], digest)
    try:
        with open(kept, "rb") as file:
            known: dict[str, Any] = orjson.loads(file.read())
            return known
    except (FileNotFoundError, orjson.JSONDecodeError):
        pass
    with open(job_path, "rb") as job:
        found = _Checker(root, arguments, job).run()
    replace(kept, dumps(found))
    return found


Source = tuple[str, str]


class _Checker:
    def __init__(self, root: Root, arguments: dict[str, Any], job: BinaryIO) -> None:
        self._mirror = root.mirror(arguments["key"])
        self._storage = open_stores(arguments)
        self._roles = arguments["roles"]
        self._facts = Facts(root)
        self._notes: dict[Source, Notes] = {}
        self._job = job
        self._places = array("Q")  # of the lines of the job: a line is read when it is wanted
        self._compared = self._left = 0

    def run(self) -> dict[str, Any]:
        self._beside()
        for leaf in self._roles:
            self._leaf(leaf)
        return {
            "sources": [
                {"kind": kind, "path": path, "findings": [noted.as_dict() for noted in notes.all()]}
                for (kind, path), notes in sorted(self._notes.items())
                if notes.all()
            ],
            "compared": self._compared,
            "not_compared": self._left,
        }

    def _of(self, source: Source) -> Notes:
        return self._notes.setdefault(source, Notes())

    # Sidecars beside sources

    def _beside(self) -> None:
        """One look beside each source, many at a time; on the way the lines are found again."""
        waiting: list[dict[str, Any]] = []
        at = 0
        for raw in self._job:
            self._places.append(at)
            at += len(raw)
            line = job_line(raw)
            if KINDS[line["kind"]].derived:
                self._route(line)
            elif KINDS[line["kind"]].loose and not KINDS[line["kind"]].bound:
                waiting.append(line)
                if len(waiting) == 4096:
                    self._look(waiting)
                    waiting = []
        self._look(waiting)

    def _look(self, lines: list[dict[str, Any]]) -> None:
        answers = self._storage.stat_many(f"{line['address']}.idx" for line in lines)
        for line, answer in zip(lines, answers, strict=True):
            if isinstance(answer, BlendexError):
                continue
            path = os.path.join(self._mirror, "idx", sidecar_files(line["kind"], line["path"])[0])
            try:
                if max(answer.size, os.stat(path).st_size) > _MAX_SIDECAR:
                    continue
                with open(path, "rb") as file:
                    right = file.read()
                data = self._storage.read(answer.address, _MAX_SIDECAR)
            except (OSError, BlendexError):
                continue
            reason = judge_sidecar(data, right)
            if reason is not None:
                self._of((line["kind"], line["path"])).add("sidecar_beside_disagrees", detail=reason)

    def _route(self, line: dict[str, Any]) -> None:
        valid = self._facts.of(line["object"], line["offset"]).get("valid_on") or {}
        devices = ", ".join(map(str, valid.get("devices", ())))
        detail = f"made on {valid.get('host', 'a machine')} with device {devices or 'numbers of an object store'}"
        self._of((line["kind"], line["path"])).add("valid_on_one_machine", detail=detail)

    # Rows and members

    def _lines(self, runs: Iterable[list[int]]) -> list[dict[str, Any]]:
        found = []
        for start, length in runs:
            for number in range(start, start + length):
                self._job.seek(self._places[number])
                found.append(job_line(self._job.readline()))
        return found

    def _leaf(self, leaf: dict[str, list[list[int]]]) -> None:
        manifests = self._lines(leaf.get("manifests", ()))
        tars = self._lines(leaf.get("tars", ()))
        for line in manifests:
            self._alone(line, "cut", "cuts_as_manifest")
        for line in self._lines(leaf.get("cuts", ())):
            self._alone(line, "nemo", "manifest_as_cuts")
        if not tars or not manifests:
            return
        if len(manifests) == len(tars):
            for manifest, tar in zip(manifests, tars, strict=True):
                self._pair(manifest, [tar])
        elif len(manifests) == 1:
            self._pair(manifests[0], tars)
        else:
            self._left += len(manifests)

    def _alone(self, line: dict[str, Any], wrong: str, name: str) -> None:
        facts = self._facts.of(line["object"], line["offset"])
        notes = Notes()
        if facts.get("first") == wrong:
            notes.add(name)
        for odd, (count, _, record) in facts.get("odd", {}).items():
            notes.add(odd, record, count=count)
        self._merge(line, notes)

    def _pair(self, manifest: dict[str, Any], tars: list[dict[str, Any]]) -> None:
        """Compare one manifest with its tars, unless it is no manifest of rows about audio, or was not learnt from."""
        if self._facts.of(manifest["object"], manifest["offset"]).get("first") != "nemo":
            return
        total = manifest["records"] + sum(tar["records"] for tar in tars)
        data = None
        if total <= _MAX_NAMES:
            data = self._facts.learned(manifest["object"], manifest["offset"])
        members: list[Members] = []
        for tar in tars if data is not None else ():
            packed = self._facts.learned(tar["object"], tar["offset"])
            if packed is None:
                break
            members.append(members_of(packed))
        if data is None or len(members) < len(tars):
            self._left += 1
            return
        self._compared += 1
        numbers = tar_numbers([tar["path"] for tar in tars]) if len(tars) > 1 else None
        about, each = compare(rows_of(data), members, numbers)
        self._merge(manifest, about)
        for tar, notes in zip(tars, each, strict=True):
            self._merge(tar, notes)

    def _merge(self, line: dict[str, Any], notes: Notes) -> None:
        """Add what is new: the same pair may stand in several entries of a blend."""
        noted = notes.all()
        if noted:
            self._of((line["kind"], line["path"])).take(noted)
