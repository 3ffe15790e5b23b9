"""The commands answered by this machine: catalog and root on disk, children of this process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from blendex.builds import access, control, describe, findings, naming
from blendex.builds.preview import preview
from blendex.builds.run import run_build, work_until_ended
from blendex.builds.site import Site, open_site
from blendex.builds.submission import Submission
from blendex.catalog import builds, mirrors
from blendex.cli.client import Watch
from blendex.runtime.slots import Slots
from blendex.settings import Settings
from blendex.units.receipt import read_receipt

# A user's own command line reads whatever the user may read.
EVERYWHERE = ("/",)
PLAN_PATIENCE = 60.0


def settings_for(root: Path | None) -> Settings:
    """The settings of this process, with the root of the command line."""
    return Settings() if root is None else Settings(root=root)


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
        if self.site.notice:
            sys.stderr.write(self.site.notice + "\n")

    def build(self, submission: Submission, watch: Watch) -> dict[str, Any]:
        """Build here."""
        return run_build(self.site, submission, watch=watch)

    def plan(self, submission: Submission) -> dict[str, Any]:
        """Preview here."""
        runner = Slots(1, "blendex.units")
        try:
            return preview(self.site, runner, submission).as_dict()
        finally:
            runner.close()

    def builds(self, state: str | None, limit: int) -> list[dict[str, Any]]:
        """Builds, newest first."""
        with self.site.work.read() as session:
            rows = builds.page(session, state=state, limit=limit)
            return [describe.build_summary(self.site, session, row) for row in rows]

    def show_build(self, build: str) -> dict[str, Any]:
        """One build."""
        with self.site.work.read() as session:
            row = builds.get(session, build)
            if row is None:
                raise control.not_found("build", build)
            return describe.build_detail(self.site, session, row)

    def findings(self, build: str) -> dict[str, Any]:
        """What was found in the sources of a build."""
        with self.site.work.read() as session:
            row = builds.get(session, build)
            if row is None:
                raise control.not_found("build", build)
            return findings.report(self.site, session, row)

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

    def pack(self, build: str, packs: str, sidecars: str, watch: Watch) -> dict[str, Any]:
        """Pack what a build has, here, as a build of its own."""
        made = control.pack(self.site, build, packs=packs, sidecars=sidecars)
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
            raise control.not_found("mirror", key)
        more = {"access": access.of_mirror(self.site, key), "receipt": read_receipt(self.site.root.mirror(key), key)}
        return describe.mirror_summary(self.site, row) | more

    def names(self) -> list[dict[str, Any]]:
        """All names."""
        with self.site.work.read() as session:
            return [describe.name_summary(self.site, session, row) for row in mirrors.names(session, limit=1000)]

    def show_name(self, name: str) -> dict[str, Any]:
        """One name."""
        with self.site.work.read() as session:
            row = mirrors.name(session, name)
            if row is None:
                raise control.not_found("name", name)
            return describe.name_summary(self.site, session, row)

    def set_name(self, name: str, build: str) -> dict[str, Any]:
        """Move a name."""
        naming.point(self.site, name, build)
        return self.show_name(name)
