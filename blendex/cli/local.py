"""The commands answered by this machine: catalog and root on disk, children of this process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blendex.builds import access, control, describe, findings, keeping, log, naming, quotas, verifying
from blendex.builds.labels import parse as parse_labels
from blendex.builds.notify import Notifier
from blendex.builds.preview import preview
from blendex.builds.run import run_build, work_until_ended
from blendex.builds.site import Site, open_site
from blendex.builds.submission import Submission
from blendex.catalog import builds, mirrors
from blendex.cli.client import Watch
from blendex.errors import BlendexError, Code
from blendex.mirrors.holds import pin
from blendex.runtime import heap
from blendex.runtime.slots import Slots
from blendex.settings import settings_for
from blendex.units.receipt import read_receipt
from blendex.units.verify import run as verify

# A user's own command line reads whatever the user may read.
EVERYWHERE = ("/",)
PLAN_PATIENCE = 60.0


class LocalClient:
    """Opens the site once, at the first command."""

    def __init__(self, root: Path | None, store_patience: float | None = None) -> None:
        settings = settings_for(root)
        if store_patience is not None:
            settings = settings.model_copy(update={"store_patience": store_patience, "plan_patience": store_patience})
        elif settings.plan_patience is None:
            # Somebody sits before it, and nothing was done yet.
            settings = settings.model_copy(update={"plan_patience": min(PLAN_PATIENCE, settings.store_patience)})
        self.site: Site = open_site(settings, EVERYWHERE, own=True)
        heap.settle()
        if self.site.warning:
            sys.stderr.write(self.site.warning + "\n")

    def build(self, submission: Submission, watch: Watch) -> dict[str, Any]:
        """Build here."""
        result = run_build(self.site, submission, watch=watch)
        if submission.notify:
            notifier = Notifier(self.site)
            while notifier.tell_one():  # once: what is not taken is told again by the next process that runs
                pass
        return result

    def plan(self, submission: Submission) -> dict[str, Any]:
        """Preview here."""
        runner = Slots(1, "blendex.units")
        try:
            return preview(self.site, runner, submission).as_dict()
        finally:
            runner.close()

    def builds(self, state: str | None, labels: list[str], limit: int) -> list[dict[str, Any]]:
        """Builds, newest first."""
        wanted = parse_labels(labels)
        with self.site.work.read() as session:
            rows = builds.page(session, state=state, labels=wanted, limit=limit)
            return [describe.build_summary(self.site, session, row) for row in rows]

    def show_build(self, build: str) -> dict[str, Any]:
        """One build."""
        with self.site.work.read() as session:
            row = builds.get(session, build)
            if row is None:
                raise naming.not_found("build", build)
            return describe.build_detail(self.site, session, row)

    def findings(self, build: str) -> dict[str, Any]:
        """What was found in the sources of a build."""
        with self.site.work.read() as session:
            row = builds.get(session, build)
            if row is None:
                raise naming.not_found("build", build)
            return findings.report(self.site, session, row)

    def log(self, build: str) -> dict[str, Any]:
        """What happened to a build."""
        with self.site.work.read() as session:
            row = builds.get(session, build)
            if row is None:
                raise naming.not_found("build", build)
            return {"id": build, "log": log.tail(session, row)}

    def cancel(self, build: str) -> dict[str, Any]:
        """Cancel a build."""
        control.cancel(self.site, build)
        return self.show_build(build)

    def retry(self, build: str, watch: Watch) -> dict[str, Any]:
        """Retry a build here."""
        control.retry(self.site, build)
        return work_until_ended(self.site, build, watch=watch)

    def accept(self, build: str, who: str, why: str, watch: Watch) -> dict[str, Any]:
        """Accept a build here."""
        control.accept(self.site, build, who=who, why=why)
        return work_until_ended(self.site, build, watch=watch)

    def rebind(self, build: str, moves: Sequence[tuple[str, str]], watch: Watch) -> dict[str, Any]:
        """Let a build follow its paths, here, as a build of its own."""
        made = control.rebind(self.site, build, moves)
        return work_until_ended(self.site, made, watch=watch)

    def pack(self, build: str, asked: dict[str, str], watch: Watch) -> dict[str, Any]:
        """Pack what a build has, here, as a build of its own."""
        made = control.pack(self.site, build, **asked)
        return work_until_ended(self.site, made, watch=watch)

    def mirrors(self, limit: int) -> list[dict[str, Any]]:
        """Mirrors, newest first."""
        with self.site.work.read() as session:
            return [describe.mirror_summary(self.site, row) for row in mirrors.page(session, limit=limit)]

    def show_mirror(self, key: str) -> dict[str, Any]:
        """One mirror with its receipt."""
        with self.site.work.read() as session:
            row = mirrors.get(session, key)
        if row is None:
            raise naming.not_found("mirror", key)
        more = {"access": access.of_mirror(self.site, key), "receipt": read_receipt(self.site.root.mirror(key), key)}
        return describe.mirror_summary(self.site, row, verifying.of(self.site, key)) | more

    def verify_mirror(self, key: str, sources: bool, report: Watch) -> dict[str, Any]:
        """Verify a mirror here."""
        if not verifying.begin(self.site, key, with_sources=sources):
            raise BlendexError(
                Code.BUSY, "somebody verifies it already.", next_step=f"Look at it: blendex mirrors show {key}."
            )
        return verifying.run(self.site, key, lambda arguments: verify(arguments, report), with_sources=sources)

    def usage(self) -> dict[str, Any]:
        """What the owner of the settings uses, and may."""
        with self.site.work.read() as session:
            return quotas.report(self.site, session, self.site.settings.owner)

    def holds(self, key: str) -> dict[str, Any]:
        """Who holds a mirror."""
        return keeping.show(self.site, key)

    def hold(self, key: str, fields: dict[str, str]) -> dict[str, Any]:
        """Pin a mirror."""
        wish = pin(fields["holder"], fields["reason"], fields.get("until"))
        return keeping.take(self.site, key, wish).as_dict()

    def release(self, key: str, kind: str, holder: str) -> dict[str, Any]:
        """Release a hold."""
        keeping.release(self.site, key, kind, holder)
        return keeping.show(self.site, key)

    def names(self) -> list[dict[str, Any]]:
        """All names."""
        with self.site.work.read() as session:
            return [describe.name_summary(self.site, session, row) for row in mirrors.names(session, limit=1000)]

    def show_name(self, name: str) -> dict[str, Any]:
        """One name."""
        with self.site.work.read() as session:
            row = mirrors.name(session, name)
            if row is None:
                raise naming.not_found("name", name)
            return describe.name_summary(self.site, session, row)

    def set_name(self, name: str, build: str) -> dict[str, Any]:
        """Move a name."""
        naming.point(self.site, name, build)
        return self.show_name(name)
