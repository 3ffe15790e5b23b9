"""Options that several commands have, and groups of them that a command takes as one value."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """What paths and variables of a blend mean."""

    base_dir: BaseDir = None
    data_blend_dir: DataBlendDir = None
    var: Var = None
    env: Env = None
    view: View = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlendOptions(WorldOptions):
    """A blend, what its paths and variables mean, and what decides what is made of it."""

    blend: Blend
    allow: Allow = None
    compat: Compat = ""
    on_bad: OnBad = "fail"
    packs: Packs = "auto"
    sidecars: Sidecars = "unpacked"
    tars: Tars = "offsets"


def _options(group: type[Any]) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options, each as one value: every field of theirs is an option of its own."""
    signature = inspect.signature(command, eval_str=True)
    annotations = {name: item.annotation for name, item in signature.parameters.items()}
    groups = {name: kind for name, kind in annotations.items() if isinstance(kind, type) and is_dataclass(kind)}
    parameters: list[Parameter] = []
    for name, item in signature.parameters.items():
        parameters += _options(groups[name]) if name in groups else [item.replace(kind=Parameter.KEYWORD_ONLY)]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run
