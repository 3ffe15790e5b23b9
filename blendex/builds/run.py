"""Build in this process: submit, work until it ends, answer. The embedded form, without any service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blendex.builds import describe
from blendex.builds.loop import ClaimLoop
from blendex.builds.site import Site
from blendex.builds.submission import Submission
from blendex.builds.submit import submit
from blendex.catalog import builds
from blendex.runtime.slots import Runner, Slots


def run_build(
    site: Site,
    submission: Submission,
    *,
    watch: Callable[[dict[str, Any]], None] = lambda _: None,
    runner: Runner | None = None,
) -> dict[str, Any]:
    """Submit a blend and work on it, and on what it shares with others, until it ends.

    Args:
        site: root and catalog.
        submission: the blend.
        watch: gets the build's description a few times a second, with what it ``awaits`` that is away.
        runner: slots to use; children of this process by default.

    Returns:
        The build's full description, in state ready, failed or cancelled.
    """
    build, _ = submit(site, submission)
    return work_until_ended(site, build.id, watch=watch, runner=runner)


def work_until_ended(
    site: Site,
    build: str,
    *,
    watch: Callable[[dict[str, Any]], None] = lambda _: None,
    runner: Runner | None = None,
) -> dict[str, Any]:
    """Work until a build ends; its full description."""

    def ended() -> bool:
        with site.work.read() as session:
            row = builds.get(session, build)
            assert row is not None
            watch(describe.build_summary(site, session, row) | {"awaits": describe.awaited(site, session, row)})
            return not describe.is_running(row)

    ClaimLoop(site, runner or Slots(site.settings.slots, "blendex.units"), idle=ended).run()
    with site.work.read() as session:
        row = builds.get(session, build)
        assert row is not None
        return describe.build_detail(site, session, row)
