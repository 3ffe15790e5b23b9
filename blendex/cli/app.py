"""``blendex``: its commands, their options, and what they print."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blendex.cli import accounts, keep
from blendex.cli.db import app as db_app
from blendex.errors import BlendexError, Code

if TYPE_CHECKING:
    from blendex.cli.client import Client

app = typer.Typer(
    name="blendex",
    help="Build, keep and find the indexes that make speech training data randomly accessible.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
builds_app = typer.Typer(
    help="List builds, look at one, cancel, retry, accept or pack it.", invoke_without_command=True
)
mirrors_app = typer.Typer(help="List mirrors, look at one.", invoke_without_command=True)
names_app = typer.Typer(help="List names, look at one, move one.", invoke_without_command=True)
app.add_typer(db_app, name="db")
app.add_typer(builds_app, name="builds")
app.add_typer(mirrors_app, name="mirrors")
app.add_typer(names_app, name="names")
app.add_typer(accounts.token_app, name="token")
app.add_typer(accounts.team_app, name="team")
app.command()(accounts.audit)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Server = Annotated[str | None, typer.Option(envvar="BLENDEX_SERVER", help="Ask a service instead of this machine.")]
RootDir = Annotated[
    Path | None,
    typer.Option("--root", help="The folder of mirrors. Default: BLENDEX_ROOT or ./blendex-data."),
]
Blend = Annotated[Path, typer.Argument(help="The blend: a YAML file, or - for standard input.")]
BaseDir = Annotated[Path | None, typer.Option(help="What relative paths of sources mean. Default: the current folder.")]
DataBlendDir = Annotated[str | None, typer.Option(help="Short for --var data_blend_dir=…")]
Var = Annotated[list[str] | None, typer.Option(help="NAME=VALUE of a ${NAME} in the blend. May be repeated.")]
Env = Annotated[list[str] | None, typer.Option(help="NAME=VALUE that ${oc.env:NAME} may see. May be repeated.")]
View = Annotated[list[str] | None, typer.Option(help="FROM=TO: a prefix as the job sees it, and as this machine does.")]
Allow = Annotated[list[str] | None, typer.Option(help="A finding to take as it is. May be repeated.")]
Compat = Annotated[str, typer.Option(help="'upstream': upstream's exact bytes, blank lines as records.")]
Packs = Annotated[
    str, typer.Option(help="auto, all, none, or names of datasets with commas between: which become one file each.")
]
Sidecars = Annotated[str, typer.Option(help="unpacked, or all: loose sidecars of packed datasets as well.")]
Tars = Annotated[str, typer.Option(help="offsets, or paths: tars in AIStore are packed unread, for GetBatch.")]
OnBad = Annotated[str, typer.Option(help="fail, or exclude: leave entries with bad sources out.")]


@app.callback()
def main(
    token: Annotated[
        str | None,
        typer.Option(help="For --server. Better: BLENDEX_TOKEN, or BLENDEX_TOKEN_FILE, which ps does not show."),
    ] = None,
) -> None:
    """Build, keep and find the indexes that make speech training data randomly accessible."""
    if token is not None:
        os.environ["BLENDEX_TOKEN"] = token


def _client(root: Path | None, server: str | None, store_patience: float | None = None) -> Client:
    from blendex.cli.client import open_client

    return open_client(root, server, store_patience)


def _submission(
    blend: Path,
    base_dir: Path | None,
    data_blend_dir: str | None,
    var: list[str] | None,
    env: list[str] | None,
    view: list[str] | None,
    allow: list[str] | None,
    compat: str,
    on_bad: str,
    packs: str,
    sidecars: str,
    name: str | None = None,
    notify: list[str] | None = None,
    label: list[str] | None = None,
    tars: str = "offsets",
) -> Any:
    from blendex.cli.submission import read_submission

    return read_submission(
        blend, base_dir, data_blend_dir, var or [], env or [], view or [], allow or [], compat, on_bad, name,
        packs, sidecars, tuple(notify or ()), label, tars,
    )  # fmt: skip


def _print(value: Any, as_json: bool, text: str) -> None:
    from blendex.cli import output

    output.show(value, as_json, text)


@app.command()
def build(
    blend: Blend,
    base_dir: BaseDir = None,
    data_blend_dir: DataBlendDir = None,
    var: Var = None,
    env: Env = None,
    view: View = None,
    allow: Allow = None,
    compat: Compat = "",
    on_bad: OnBad = "fail",
    packs: Packs = "auto",
    sidecars: Sidecars = "unpacked",
    tars: Tars = "offsets",
    name: Annotated[str | None, typer.Option(help="A name that shall point at this build.")] = None,
    notify: Annotated[
        list[str] | None, typer.Option(help="A receiver of the settings that is told of the end. Repeatable.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE: to find the build by; changes nothing. May be repeated.")
    ] = None,
    store_patience: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="How long to wait for a store that is away (here).")
    ] = None,
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Build the mirror of a blend; prints its path last."""
    from blendex.cli import output

    submission = _submission(
        blend, base_dir, data_blend_dir, var, env, view, allow, compat, on_bad, packs, sidecars, name, notify, label,
        tars,
    )
    with output.progress(enabled=not json) as watch:
        result = _client(root, server, store_patience).build(submission, watch)
    output.build_result(result, json)


@app.command()
def plan(
    blend: Blend,
    base_dir: BaseDir = None,
    data_blend_dir: DataBlendDir = None,
    var: Var = None,
    env: Env = None,
    view: View = None,
    allow: Allow = None,
    compat: Compat = "",
    on_bad: OnBad = "fail",
    packs: Packs = "auto",
    sidecars: Sidecars = "unpacked",
    tars: Tars = "offsets",
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Say what a build would read and make, without building."""
    from blendex.cli import output

    submission = _submission(
        blend, base_dir, data_blend_dir, var, env, view, allow, compat, on_bad, packs, sidecars, tars=tars
    )
    output.plan_result(_client(root, server).plan(submission), json)


@app.command()
def findings(
    build: Annotated[str, typer.Argument(help="The id of a build.")],
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Say what was found in the sources of a build, what it does to training, and what mends it."""
    from blendex.cli import output

    output.findings(_client(root, server).findings(build), json)


@app.command()
def lint(
    files: Annotated[list[Path], typer.Argument(help="Training configs and blends: YAML files.")],
    fix: Annotated[bool, typer.Option("--fix", help="Write the safe patches into the files.")] = False,
    launcher: Annotated[
        Path | None, typer.Option(help="The script that starts training: sbatch, sh, NeMo-Run.")
    ] = None,
    facts: Annotated[
        Path | None, typer.Option(help="JSON: environment, versions, mounts, checkpoint, walltime.")
    ] = None,
    baseline: Annotated[Path | None, typer.Option(help="JSON: findings that may stand, with reasons.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Short for --fail-on warning.")] = False,
    fail_on: Annotated[str | None, typer.Option(help="fatal, error, warning, note or never. Default: error.")] = None,
    upstream: Annotated[str, typer.Option(help="main, or 2.0.0a7 for the older texts.")] = "main",
    json: Json = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="A folder for the report, the patched files, checklist and build command.")
    ] = None,
    base_dir: BaseDir = None,
    data_blend_dir: DataBlendDir = None,
    var: Var = None,
    env: Env = None,
    view: View = None,
    root: RootDir = None,
    server: Annotated[
        str | None, typer.Option(help="Have a service lint, with what it knows: sources, catalog, mirrors.")
    ] = None,
) -> None:
    """Say what keeps a training config from resuming exactly, and patch what is safe to patch.

    Exit status: 0 nothing of that severity stands, 1 something does, 2 a file or an option cannot be used.
    """
    from blendex.cli import lint as command
    from blendex.cli import output
    from blendex.cli.submission import read_world

    try:
        if json and sarif:
            raise BlendexError(Code.BAD_REQUEST, "--json and --sarif exclude each other.", next_step="Say one.")
        status = command.run(
            files,
            read_world(base_dir, data_blend_dir, var or [], env or [], view or []),
            fix=fix,
            launcher=launcher,
            facts=facts,
            baseline=baseline,
            upstream=upstream,
            fail_on=fail_on or ("warning" if strict else "error"),
            form="json" if json else "sarif" if sarif else "text",
            out=out,
            root=root,
            server=server,
        )
    except BlendexError as error:
        output.error(error)
        raise SystemExit(command.UNUSABLE) from None
    raise SystemExit(status)


@app.command()
def usage(json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """Show what your team uses, and what it may."""
    result = _client(root, server).usage()
    lines = [f"{'of team ' + result['team']:24} {'used':>16} {'quota':>16}"]
    for name in dict.fromkeys([*result["usage"], *result["quota"]]):
        used, quota = result["usage"].get(name, "–"), result["quota"].get(name)
        lines.append(f"{name:24} {used:>16} {'any number' if quota is None else quota:>16}")
    _print(result, json, "\n".join(lines))


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8765,
    allow_root: Annotated[
        list[Path] | None, typer.Option(help="A folder in which sources may be read. May be repeated.")
    ] = None,
    root: RootDir = None,
) -> None:
    """Serve the API on this machine, with workers in the same process."""
    from blendex.cli.serve import serve as run

    run(host, port, allow_root or [], root)


@app.command()
def worker(
    classes: Annotated[
        list[str] | None, typer.Option(help="plan, index or publish: the work to claim. May be repeated. Default: all.")
    ] = None,
    slots: Annotated[int | None, typer.Option(min=1, max=256, help="Child processes that work at one time.")] = None,
    budget: Annotated[
        int | None, typer.Option(min=64, help="Memory of all children together, in MiB. Default: what there is.")
    ] = None,
    allow_root: Annotated[
        list[Path] | None, typer.Option(help="A folder in which sources may be read. May be repeated.")
    ] = None,
    healthcheck: Annotated[
        bool, typer.Option("--healthcheck", help="Only say whether the workers of this host consume; 1 when not.")
    ] = False,
    root: RootDir = None,
) -> None:
    """Claim and do units of a shared catalog, woken through BLENDEX_BROKER_URL, until SIGTERM."""
    from blendex.cli.worker import healthy, work

    if healthcheck:
        raise typer.Exit(0 if healthy() else 1)
    work(root, allow_root or [], classes or [], slots, budget)


@app.command()
def migrate(root: RootDir = None, json: Json = False) -> None:
    """Short for db upgrade."""
    from blendex.cli.db import run_upgrade

    revision = run_upgrade(root, 0)
    _print({"revision": revision}, json, f"the catalog is at revision {revision}")


@app.command()
def doctor(
    urls: Annotated[list[str] | None, typer.Argument(help="Objects or prefixes to look at, such as s3://b/p.")] = None,
    second_host: Annotated[
        bool, typer.Option("--second-host", help="Wait for another machine, and time how soon it sees the root.")
    ] = False,
    from_node: Annotated[str | None, typer.Option(help="On that machine: the code that --second-host printed.")] = None,
    json: Json = False,
    root: RootDir = None,
) -> None:
    """Look at root, database, queue, clock and stores, and say of each what to do. Status 1 when something is wrong."""
    from blendex.cli import doctor as command

    if second_host and from_node is not None:
        raise BlendexError(Code.BAD_REQUEST, "--second-host and --from-node exclude each other.", next_step="Say one.")
    found = command.examine(root, from_node, second_host, urls or ())
    _print(command.as_dict(found), json, "\n".join(command.lines(found)))
    raise SystemExit(0 if command.as_dict(found)["healthy"] else 1)


@app.command()
def verify(
    mirror: Annotated[Path, typer.Argument(help="The folder of a mirror.")],
    sources: Annotated[bool, typer.Option(help="Also ask whether the sources are unchanged.")] = False,
    json: Json = False,
) -> None:
    """Read a mirror whole and compare it with its receipt."""
    from blendex.cli import output
    from blendex.units.verify import run

    with output.counter("verify", enabled=not json) as report:
        result = run({"mirror": str(mirror.absolute()), "sources": sources}, report)
    output.verify_result(result, json)


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="A .idx, .idxpack or .sgroute.")],
    source: Annotated[Path | None, typer.Option(help="The source of a .idx, to compare sizes.")] = None,
    blend: Annotated[
        Path | None,
        typer.Option(help="The ready blend of a .idxpack, to compare keys, sources and layout hash."),
    ] = None,
    base_dir: BaseDir = None,
    data_blend_dir: DataBlendDir = None,
    var: Var = None,
    env: Env = None,
    json: Json = False,
) -> None:
    """Describe an index file, and prove what it says: checksums, ascending offsets, layout hash, sizes."""
    from blendex.cli import output
    from blendex.formats.inspection import inspect as run

    found = run(str(file), None if source is None else str(source))
    if blend is not None and found["format"] == "idxpack" and "collections" in found:
        from blendex.cli.submission import read_world
        from blendex.units.against import against

        told = against(str(file), str(blend), read_world(base_dir, data_blend_dir, var or [], env or [], []))
        found |= {"dataset": told["dataset"], "faults": [*found["faults"], *told["faults"]]}
    output.inspection(found, json)


@app.command()
def sample(
    folder: Annotated[Path, typer.Argument(help="A folder that does not exist or is empty.")],
    utterances: Annotated[int, typer.Option(help="How many short recordings.")] = 24,
    json: Json = False,
) -> None:
    """Make a small corpus of real WAV and FLAC in upstream's formats, with a blend over it."""
    from blendex.sample import make

    path = make(folder, utterances=utterances)
    _print({"blend": str(path), "data_blend_dir": str(folder.absolute())}, json, str(path))


@builds_app.callback()
def list_builds(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(help="Only builds in this state.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE: only builds that have it. May be repeated.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 20,
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Newest first."""
    from blendex.cli import output

    if context.invoked_subcommand is None:
        output.builds(_client(root, server).builds(state, label or [], limit), json)


@builds_app.command("show")
def show_build(build: str, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """One build, with its problems."""
    from blendex.cli import output

    output.build_detail(_client(root, server).show_build(build), json)


@builds_app.command("log")
def log_of_build(build: str, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """What happened to a build, the newest last."""
    from blendex.cli import output

    output.log(_client(root, server).log(build), json)


@builds_app.command("cancel")
def cancel_build(build: str, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """Withdraw a build; what others wait for goes on."""
    _print(_client(root, server).cancel(build), json, f"{build} cancelled")


@builds_app.command("retry")
def retry_build(build: str, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """Do a failed or cancelled build again."""
    from blendex.cli import output

    with output.progress(enabled=not json) as watch:
        result = _client(root, server).retry(build, watch)
    output.build_result(result, json)


@builds_app.command("accept")
def accept_build(
    build: str,
    why: Annotated[str, typer.Option(help="Why the bad entries may be missing; kept in the receipt.")],
    who: Annotated[str | None, typer.Option(help="Who says so. Default: the user of this shell.")] = None,
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Publish a failed build without its bad entries."""
    import getpass

    from blendex.cli import output

    with output.progress(enabled=not json) as watch:
        result = _client(root, server).accept(build, who or getpass.getuser(), why, watch)
    output.build_result(result, json)


@builds_app.command("pack")
def pack_build(
    build: str,
    packs: Packs = "all",
    sidecars: Sidecars = "unpacked",
    tars: Tars = "offsets",
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Pack what a ready build has: a build of its own, of the same blend."""
    from blendex.cli import output

    with output.progress(enabled=not json) as watch:
        result = _client(root, server).pack(build, {"packs": packs, "sidecars": sidecars, "tars": tars}, watch)
    output.build_result(result, json)


@builds_app.command("rebind")
def rebind_build(
    build: str,
    map: Annotated[list[str], typer.Option(help="OLD=NEW: a prefix as it was, and as it is. May be repeated.")],  # noqa: A002
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Let a ready build follow paths that moved: a build of its own, proven against the old mirror."""
    from blendex.cli import output
    from blendex.cli.submission import pairs

    moves = tuple(pairs(map, "--map").items())
    with output.progress(enabled=not json) as watch:
        result = _client(root, server).rebind(build, moves, watch)
    output.build_result(result, json)


@mirrors_app.callback()
def list_mirrors(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 20,
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Newest first."""
    from blendex.cli import output

    if context.invoked_subcommand is None:
        output.mirrors(_client(root, server).mirrors(limit), json)


@mirrors_app.command("show")
def show_mirror(key: str, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """One mirror, with its receipt."""
    from blendex.cli import output

    output.pairs(_client(root, server).show_mirror(key), json)


@mirrors_app.command("verify")
def verify_mirror(
    key: str,
    sources: Annotated[bool, typer.Option(help="Also ask whether the sources are unchanged.")] = False,
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Read a mirror whole, compare it with its receipt, and keep the outcome for whoever looks at it."""
    from blendex.cli import output

    with output.counter("verify", enabled=not json) as report:
        output.verification(_client(root, server).verify_mirror(key, sources, report), json)


@names_app.callback()
def list_names(context: typer.Context, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """All names."""
    from blendex.cli import output

    if context.invoked_subcommand is None:
        output.names(_client(root, server).names(), json)


@names_app.command("show")
def show_name(name: str, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """Where a name points, and pointed."""
    from blendex.cli import output

    output.pairs(_client(root, server).show_name(name), json)


@names_app.command("set")
def set_name(name: str, build: str, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """Let a name point at a ready build."""
    from blendex.cli import output

    output.pairs(_client(root, server).set_name(name, build), json)


keep.install(app)


def run() -> None:
    """Run the command line; an error a person can act on ends it with status 1 and no traceback."""
    try:
        app()
    except BlendexError as error:
        from blendex.cli import output

        raise SystemExit(output.error(error)) from None
