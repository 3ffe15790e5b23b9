"""Lints, each in a child of its own: as many at one time as there are runners, the others wait their turn."""

from __future__ import annotations

import queue
import re
import threading
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from blendex.blend.model import Source
from blendex.builds.site import Site
from blendex.builds.visibility import Verdicts
from blendex.errors import BlendexError, Code
from blendex.lint.knowledge import known_now
from blendex.runtime.budget import read_budget
from blendex.runtime.slots import Call, Runner, Slots
from service.linting import Asked

RUNNERS = 2
# Each caller that waits holds a thread of the pool, which has 40.
MOST_WAITING = 8
WAIT_SECONDS = 15.0
# A child holds about 20 kB for an entry of a blend; a training config has far fewer than these.
MOST_NODES = 500_000
MOST_SOURCES = 200_000
MEMORY = 1024 * 2**20
LEAST_MEMORY = 256 * 2**20
MOST_SECONDS = 60.0
# Mirrors of ours that a config of a team may name.
MOST_MIRRORS = 100
KEY = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


class Lints:
    """Runs lints in children, which are started when the first one comes.

    Args:
        site: root, roots and catalog.
        memory: of one child, in bytes; less where this process and its children may not use three times as much.
        seconds: that one lint may take.
        verdicts: of mirrors, as far as they are known.
    """

    def __init__(
        self, site: Site, memory: int = MEMORY, seconds: float = MOST_SECONDS, verdicts: Verdicts | None = None
    ) -> None:
        self._site = site
        self._verdicts = verdicts or Verdicts()
        self._memory = memory
        self._seconds = seconds
        self._places = threading.BoundedSemaphore(MOST_WAITING)
        self._lock = threading.Lock()
        self._made: list[Runner] = []
        self._free: queue.SimpleQueue[Runner] = queue.SimpleQueue()

    def run(self, asked: Asked, upstream: str, output: str, site: Site | None = None) -> Any:
        """What a child answers whoever uses ``site``: the JSON, the SARIF, or the zip in base64.

        Raises:
            BlendexError: something that came cannot be read; it takes too much; busy.
        """
        if not self._places.acquire(blocking=False):
            raise _busy()
        try:
            runner = self._runner()
            try:
                return self._lint(runner, asked, upstream, output, site or self._site)
            finally:
                self._free.put(runner)
        finally:
            self._places.release()

    def close(self) -> None:
        """End the children."""
        with self._lock:
            for runner in self._made:
                runner.close()

    def _runner(self) -> Runner:
        with self._lock:
            if self._free.empty() and len(self._made) < RUNNERS:
                self._made.append(Slots(1, "blendex.lint"))
                return self._made[-1]
        try:
            return self._free.get(timeout=WAIT_SECONDS)
        except queue.Empty:
            raise _busy() from None

    def _lint(self, runner: Runner, asked: Asked, upstream: str, output: str, site: Site) -> Any:
        arguments = self._arguments(asked, upstream, output, site)
        rows = self._call(runner, arguments | {"known": None})["sources"]
        sources = [(Source(kind, path), address, token) for kind, path, address, token in rows]
        seen = known_now(self._site.work, sources)
        known = [[source.kind, source.path, found.as_dict()] for source, found in seen.items()]
        return self._call(runner, arguments | {"known": known})[output]

    def _mirrors(self, asked: Asked, site: Site) -> list[str]:
        """Folders of ours: whether a mirror has an index may be asked of whoever may ask for its path."""
        if site.who.everything:
            return [site.root.mirror("").rstrip("/")]
        named = _named((asked.submission.text, *asked.submission.nested.values()))
        return [site.root.mirror(key) for key in sorted(named)[:MOST_MIRRORS] if self._verdicts.mirror(site, key)]

    def _call(self, runner: Runner, arguments: dict[str, Any]) -> dict[str, Any]:
        memory = self._memory_now()
        runner.start(Call("blendex.lint.child:run", arguments, memory, self._seconds))
        outcome = runner.outcomes.get()
        if outcome.error is not None:
            raise BlendexError.from_dict(outcome.error)
        if outcome.result is None:
            raise self._died(outcome.cause, memory)
        return outcome.result

    def _memory_now(self) -> int:
        """What all children can take at once without the container being killed for it."""
        fair = max(LEAST_MEMORY, read_budget().left // (RUNNERS + 1))
        return min(self._memory, fair)

    def _died(self, cause: str, memory: int) -> BlendexError:
        most = {"memory": f"{memory // 2**20:,} MiB of memory", "timeout": f"{self._seconds:.0f} seconds"}
        if cause in most:
            return BlendexError(
                Code.BLEND_TOO_MANY_NODES,
                f"linting this config takes more than {most[cause]}.",
                next_step="Lint it with blendex lint where the data is, or lint its parts.",
            )
        return BlendexError(
            Code.CHILD_DIED,
            f"the lint was stopped ({cause}).",
            next_step="Ask again; see the log.",
        )

    def _arguments(self, asked: Asked, upstream: str, output: str, site: Site) -> dict[str, Any]:
        submission = asked.submission
        launcher = asked.launcher
        return {
            "text": _text(submission.text),
            "file": submission.file,
            "nested": {address: _text(text) for address, text in submission.nested.items()},
            "world": site.placed(submission.world).as_dict(),
            **site.reading(),
            "mirrors": self._mirrors(asked, site),
            "nodes": MOST_NODES,
            "paths": min(MOST_SOURCES, site.settings.max_sources),
            "upstream": upstream,
            "launcher": [launcher[0], _text(launcher[1])] if launcher is not None else None,
            "facts": _text(asked.facts) if asked.facts is not None else None,
            "baseline": _text(asked.baseline) if asked.baseline is not None else None,
            "output": output,
        }


def _named(texts: Iterable[bytes]) -> set[str]:
    return {found.decode() for text in texts for found in KEY.findall(text)}


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _busy() -> BlendexError:
    return BlendexError(Code.BUSY, "other configs are being linted.", next_step="Ask again in a few seconds.")
