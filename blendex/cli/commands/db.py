"""``blendex db`` and ``migrate``: upgrade, check, back up and restore the catalog."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from blendex.cli.options import Json, RootDir
from blendex.errors import BlendexError, Code

app = typer.Typer(help="Upgrade, check, back up or restore the catalog.", no_args_is_help=True)
T = TypeVar("T")

Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait for it.")]


def _catalog(root: Path | None) -> tuple[Any, str]:
    """An engine on the catalog, and the root. A database elsewhere can be upgraded where the root is not mounted."""
    from blendex.catalog.dialect import open_engine
    from blendex.catalog.engine import default_url
    from blendex.settings import settings_for
    from blendex.storage.root import Root

    settings = settings_for(root)
    url = settings.database_url
    if url is None:
        place = Root(settings.root)
        place.prepare()
        url = default_url(place.path, settings.state_dir)[0]
    return open_engine(url, "blendex db"), str(settings.root)


def _patient(what: Callable[[], T], seconds: float) -> T:
    """Do something as soon as the database answers."""
    from blendex.catalog import dialect, health

    deadline = time.monotonic() + seconds
    while True:
        try:
            return what()
        except dialect.AWAY as error:
            if time.monotonic() >= deadline:
                raise BlendexError(
                    Code.BUSY,
                    f"the database does not answer: {health.reason(error)}",
                    next_step="blendex doctor tells more.",
                ) from error
        time.sleep(0.5)


def _drift(engine: Any) -> list[str]:
    from blendex.catalog import migrate

    return [str(item) for item in migrate.drift(engine)]


@app.command()
def upgrade(root: RootDir = None, wait: Wait = 0, json: Json = False) -> None:
    """Bring the catalog to the revision that this version works with."""
    from blendex.catalog import migrate, revision
    from blendex.cli import output

    engine, _ = _catalog(root)
    try:
        _patient(lambda: migrate.upgrade(engine), wait)
        found = revision.current(engine) or ""
    finally:
        engine.dispose()
    output.show({"revision": found}, json, f"the catalog is at revision {found}")


@app.command()
def check(
    strict: Annotated[
        bool, typer.Option("--strict", help="Compare every table as well: what somebody changed by hand fails.")
    ] = False,
    root: RootDir = None,
    wait: Wait = 0,
    json: Json = False,
) -> None:
    """Is the schema one that this version works with? Exit status 1 when it is not; --wait waits until it is."""
    from blendex.catalog import revision
    from blendex.cli import output

    engine, _ = _catalog(root)
    deadline = time.monotonic() + wait
    try:
        while not (fits := _patient(lambda: revision.fits(engine), deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                break
            time.sleep(0.5)
        found = revision.current(engine)
        drift = _drift(engine) if strict and found == revision.head() else []
    finally:
        engine.dispose()
    good = fits and not drift
    if not fits:
        says = str(revision.misfit(found))
    elif drift:
        says = f"the catalog is at revision {found}, and somebody changed its tables: " + "; ".join(drift)
    elif found != revision.head():
        says = f"the catalog is at revision {found}, newer than this version, which works with it"
    else:
        says = f"the catalog is at revision {found}, which this version works with"
    output.show({"good": good, "revision": found, "needed": revision.head(), "drift": drift}, json, says)
    raise SystemExit(0 if good else 1)


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="A file that is not there yet.")],
    root: RootDir = None,
    json: Json = False,
) -> None:
    """Copy the catalog, as it is at one instant, into one file; everything may go on meanwhile."""
    from blendex.catalog import backup as copies
    from blendex.cli import output

    engine, _ = _catalog(root)
    try:
        counts = _patient(lambda: copies.save(engine, str(file.absolute())), 0)
    finally:
        engine.dispose()
    output.show({"file": str(file.absolute()), "rows": counts}, json, f"{sum(counts.values())} rows are in {file}")


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(help="What blendex db backup made.")], root: RootDir = None, json: Json = False
) -> None:
    """Fill an empty database from a backup; the next process that starts adds what the root holds beyond it."""
    from blendex.catalog import backup as copies
    from blendex.cli import output

    engine, place = _catalog(root)
    try:
        counts = _patient(lambda: copies.load(engine, str(file.absolute()), place), 0)
    finally:
        engine.dispose()
    output.show({"file": str(file.absolute()), "rows": counts}, json, f"{sum(counts.values())} rows came from {file}")


def migrate(root: RootDir = None, json: Json = False) -> None:
    """Short for db upgrade."""
    upgrade(root, json=json)
