"""``blendex hold``, ``holds``, ``release`` and ``collect``: what is kept, and what goes."""

from __future__ import annotations

import getpass
from typing import Annotated, Any

import typer

from blendex.cli.client import open_client
from blendex.cli.options import Json, RootDir, Server
from blendex.errors import BlendexError, Code

MIB = 2**20

Key = Annotated[str, typer.Argument(help="The key of a mirror, or its folder.")]
Who = Annotated[str | None, typer.Option(help="Who holds it. Default: the user of this shell.")]


def _key(text: str) -> str:
    """A key, also from the folder that bears it."""
    key = text.rstrip("/").rpartition("/")[2]
    if len(key) != 64 or not set("0123456789abcdef").issuperset(key):
        raise BlendexError(
            Code.BAD_REQUEST, f"{text[:200]} is no key of a mirror.", next_step="blendex mirrors lists them."
        )
    return key


def _listed(found: dict[str, Any]) -> str:
    from blendex.cli import output

    lines = [f"{found['mirror']} is {found['state']}"]
    for item in found["holds"]:
        until = f"until {output.moment(item['until'])}" if item["until"] else "until it is released"
        until = {"name": "until it moves", "build": "until it ends"}.get(item["kind"], until)
        lines.append(f"{item['kind']:<6} {item['holder']}  {until}  {item['reason'] or ''}".rstrip())
    if not found["holds"]:
        lines.append("nobody holds it")
    if found["may_go_at"]:
        lines.append(f"it may be collected from {output.moment(found['may_go_at'])} on, unless somebody wants it")
    return "\n".join(lines)


def holds(key: Key, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """Say who holds a mirror: names, pins, jobs, chains."""
    from blendex.cli import output

    found = open_client(root, server).holds(_key(key))
    output.show(found, json, _listed(found))


def hold(
    key: Key,
    reason: Annotated[str, typer.Option(help="Why it is kept.")],
    who: Who = None,
    until: Annotated[
        str | None, typer.Option(help="2030-01-31T18:00Z, or seconds since the epoch. Default: no end.")
    ] = None,
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Pin a mirror: it stays until it is released. The same person once more changes end and reason."""
    from blendex.cli import output

    fields = {"holder": who or getpass.getuser(), "reason": reason} | ({"until": until} if until else {})
    held = open_client(root, server).hold(_key(key), fields)
    output.show(held, json, f"{held['holder']} holds {_key(key)}")


def release(
    key: Key,
    who: Who = None,
    kind: Annotated[str, typer.Option(help="pin, job or chain.")] = "pin",
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Let a mirror go, as far as one holder is concerned."""
    from blendex.cli import output

    found = open_client(root, server).release(_key(key), kind, who or getpass.getuser())
    output.show(found, json, _listed(found))


def collect(
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go, as without --yes.")] = False,
    json: Json = False,
    root: RootDir = None,
) -> None:
    """Free what nobody holds: mark it first, let it go when it was marked for days, empty the trash."""
    from blendex.builds import keeping
    from blendex.cli import output
    from blendex.cli.local import LocalClient

    if yes and dry_run:
        raise BlendexError(Code.BAD_REQUEST, "--yes and --dry-run exclude each other.", next_step="Say one.")
    found = keeping.collected(LocalClient(root).site, dry=not yes)
    output.show(found, json, _done(found) if yes else _planned(found))


def _rest(seconds: float) -> str:
    return (
        f"nothing goes for another {seconds / 86400:.1f} days: the catalog was restored or adopted, and holds may be "
        "missing that it does not know"
    )


def _planned(found: dict[str, Any]) -> str:
    lines = [_rest(found["rests"])] if found["rests"] else []
    for what, verb in (("collect", "would go"), ("condemn", "would be condemned, and served for days more")):
        rows = found[what]
        size = sum(row["bytes"] for row in rows) / MIB
        lines.append(f"{len(rows)} mirrors {verb} (up to {size:.1f} MiB)")
        lines += [f"  {row['key']}" for row in rows[:50]]
    lines.append(
        f"{found['objects_collect']['count']} objects would go ({found['objects_collect']['bytes'] / MIB:.1f} MiB), "
        f"{found['objects_mark']['count']} would be marked"
    )
    return "\n".join([*lines, "nothing was done; --yes does it"])


def _done(found: dict[str, Any]) -> str:
    if found["rests"]:
        return _rest(found["rests"])
    lines = [
        f"{found['condemned']} mirrors condemned, {len(found['mirrors'])} collected; "
        f"{found['objects_marked']} objects marked, {found['objects']} collected",
        f"{found['files']} files deleted, {found['bytes'] / MIB:.1f} MiB freed",
    ]
    return "\n".join([*lines, *(f"kept {key}: {why}" for key, why in found["kept"].items())])
