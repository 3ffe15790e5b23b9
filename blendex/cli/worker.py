"""``blendex worker``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from blendex.builds.site import open_site
from blendex.cli import tracing
from blendex.errors import BlendexError, Code
from blendex.observability import logs, traces
from blendex.settings import Settings, settings_for


def _settings(root: Path | None, classes: Sequence[str], slots: int | None, budget_mb: int | None) -> Settings:
    settings = settings_for(root)
    given = {"classes": tuple(classes) or None, "slots": slots, "budget_mb": budget_mb}
    changed = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings.model_validate(settings.model_dump() | changed)
    except ValidationError as error:
        raise BlendexError(
            Code.BAD_REQUEST,
            "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()),
            next_step="See blendex worker --help.",
        ) from error


def work(
    root: Path | None, allow_root: Sequence[Path], classes: Sequence[str], slots: int | None, budget_mb: int | None
) -> None:
    """Claim and do units until a signal."""
    try:
        from workers.main import run
    except ModuleNotFoundError as error:
        raise BlendexError(
            Code.BAD_REQUEST,
            f"a worker needs the extra 'workers' ({error.name} is not installed).",
            next_step="pip install 'blendex[workers,postgres]'",
        ) from error

    settings = _settings(root, classes, slots, budget_mb)
    logs.configure(settings.log_format, settings.log_level)
    tracing.begin(settings, "blendex worker")
    roots = tuple(os.path.realpath(path) for path in allow_root) or settings.allowed_roots or (os.getcwd(),)
    site = open_site(settings, roots, "blendex worker")
    broker = settings.broker_url
    run(site, None if broker is None else broker.get_secret_value())
    traces.close()
    # Threads of libraries may sit in a call that nobody will answer; nothing is left that they could be needed for.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def healthy() -> bool:
    """Whether the workers of this host consume; says so of each."""
    from workers import liveness

    well, lines = liveness.check()
    sys.stdout.write("\n".join(lines) + "\n")
    return well
