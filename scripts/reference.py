"""Write docs/reference/*.md from the code, so that they cannot differ. ``--check``: are they as the code says?"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from blendex.errors import MEANING, Code
from blendex.formats.crosscheck import CROSS_FINDINGS
from blendex.formats.findings import FINDINGS
from blendex.lint import engine
from blendex.lint.profile import PROFILES
from blendex.lint.rule import RULES, Rule
from blendex.settings import NotifySettings, QuotaSettings, Settings, StoreSettings
from service.problems import STATUS

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
HEAD = "<!-- Written by scripts/reference.py from the code: change it there. -->\n\n"

SECRET = "A secret may be written `env:NAME` or `file:/path`."
PARTS: tuple[tuple[str, str, type[BaseModel]], ...] = (
    ("Endpoint profiles", f"Fields of one profile in `BLENDEX_STORES` or the stores file. {SECRET}", StoreSettings),
    ("Receivers", f"Fields of one receiver in `BLENDEX_NOTIFY`. {SECRET}", NotifySettings),
    ("Quotas", "Fields of one team in `BLENDEX_QUOTAS`.", QuotaSettings),
)


def _settings() -> str:
    lines = [
        HEAD + "# Settings\n\nEvery process reads them from the environment; the command line overrides some.\n",
        "| variable | default | what it is |\n|---|---|---|",
    ]
    dynamic = {
        "slots": "number of cores",
        "stores": "none",
        "notify": "none",
        "quotas": "none",
        "state_dir": "`$XDG_STATE_HOME/blendex` or `~/.local/state/blendex`",
    }
    for name, field in Settings.model_fields.items():
        default = dynamic.get(name)
        if default is None:
            assert field.default is not PydanticUndefined
            default = "none" if field.default in (None, ()) else f"`{field.default}`"
        lines.append(f"| `BLENDEX_{name.upper()}` | {default} | {field.description} |")
    for title, words, model in PARTS:
        lines += [f"\n## {title}\n\n{words}\n", "| field | default | what it is |\n|---|---|---|"]
        for name, field in model.model_fields.items():
            empty = field.default in (None, ())
            default = "required" if field.is_required() else "none" if empty else f"`{field.default}`"
            lines.append(f"| `{name}` | {default} | {field.description} |")
    return "\n".join(lines) + "\n"


def _errors() -> str:
    lines = [
        HEAD + "# Error codes\n\nThe same in answers of the API, on the command line, and in stored builds. An answer "
        "is an RFC 9457 problem with `code`, `detail`, and where they are known `file`, `line`, `byte` and "
        "`next_step`.\n",
        "| code | HTTP status | meaning |\n|---|---|---|",
    ]
    lines += [f"| `{code}` | {STATUS[code]} | {MEANING[code]} |" for code in Code]
    return "\n".join(lines) + "\n"


def _findings() -> str:
    lines = [
        HEAD + "# Findings\n\nWhat Blendex notices in a source while it reads it. A finding of severity *refuse* "
        "refuses the source unless the request names it in `allow=`; the others are told. Findings are kept with the "
        "content, and every request judges them anew.\n",
        "| finding | severity | effect | remedy |\n|---|---|---|---|",
    ]
    lines += [f"| `{name}` | {item.severity} | {item.effect} | {item.remedy} |" for name, item in FINDINGS.items()]
    lines += [
        "\nWhat shows when sources are held against each other, from what was learnt in the same reads. It never "
        "refuses a source.\n",
        "| finding | severity | effect | remedy |\n|---|---|---|---|",
    ]
    crossed = CROSS_FINDINGS.items()
    lines += [f"| `{name}` | {item.severity} | {item.effect} | {item.remedy} |" for name, item in crossed]
    return "\n".join(lines) + "\n"


_LINT = """\
# Rules of lint

`blendex lint FILE…` and `POST /v1/lint` hold a training config, its blend, its launcher and what is known of the run
against these rules. *Fatal*: nothing can be patched, data or layout have to change. *Error*: the run would not resume
exactly, or not start. *Warning*: it depends. *Note*: told, nothing more. A config is **launch-ready** when nothing
fatal and no error stands, or somebody has signed for what does. What could not be judged is listed as not checked, with
what it takes.

Only what says so has a patch: `--fix` writes it into the file, and leaves comments, order, anchors and quotes as they
are. A patch that would reach further than the field it names is left out, and said.

## What is looked at

The config, every nested blend, and the launcher are read as text; nothing is run, and of the environment only what is
handed in is known. Of files it is asked whether sources, sidecars and packs are there and fit each other. What is
*in* a source is known where a build has read it (`--root` names the mirrors whose catalog is asked). Other sources
that are here are looked at, with an end of 256 files and 256 MiB: the first sources of every entry before the second
ones, small ones whole, of larger manifests the first and the last MiB, of tars their headers (a byte of a tar counts
as an eighth). What was left out is listed.

`--server URL` has a service do it: it sees the sources in its allowed roots, its catalog and its mirrors. Config and
nested blends below the base folder travel with the request.

## Exit status

| status | meaning |
|---|---|
| 0 | nothing of severity `error` or worse stands (`--fail-on` another one, or `never`; `--strict` is `warning`) |
| 1 | something does; with `--fix`, after the patch |
| 2 | a file or an option cannot be used |

## Exceptions

A comment on the line of a finding, or on the line above it, lets it stand; `allow-file` lets a rule stand in the whole
file. The reason is required, and for what is fatal an expected cost as well. After its end an exception does not count.

```
# blendex: allow IDX016 until 2027-01-31 cost "2 h more per epoch" because the text set is small
```

Or a baseline file (`--baseline`), for configs that cannot be changed:

```json
{"allow": [{"rule": "IDX042", "field": "exp_manager.resume_if_exists", "reason": "one chunk"}]}
```

## Facts

`--facts FILE`, the part `facts` over HTTP. All of it is optional, and nothing is guessed.

| fact | example |
|---|---|
| `environment` | `{"USE_AIS_GET_BATCH": "true"}`: all variables of the training; one that is missing is not set |
| `versions` | `{"lhotse": "2.0.0a7", "nemo-toolkit": "3.1.0"}`; one that is missing is not installed |
| `vm.max_map_count` | `65530` |
| `mounts` | `{"/raid": "node-local", "/lustre": "lustre"}` |
| `checkpoint` | `{"world_size": 16, "num_workers": 4, "max_steps": 1000}`: of the one that shall be resumed |
| `walltime` | `"04:00:00"` |
| `build` | `{"workers": 16, "memory_bytes": 64000000000}`: of a job with upstream's own scripts |
"""


def _place(text: str) -> str:
    return text.replace("|", "\\|")


def _rule(item: Rule) -> list[str]:
    example = item.example
    lines = [
        f"### {item.id}\n",
        f"**{item.title}.** {item.severity.capitalize()}. Where: {item.where}.\n",
        f"{item.why} Otherwise: {item.otherwise}\n",
        f"Patch: {item.patch or 'none'}. Source: {item.source}.",
    ]
    if len(item.profiles) < len(PROFILES):
        lines[-1] += f" Holds for upstream {', '.join(f'`{name}`' for name in sorted(item.profiles))} only."
    if item.blend and item.severity == "fatal":
        lines[-1] += " A build of such a blend is refused, unless with `lint=off`."
    lines.append("\nBreaks it:\n")
    lines.append(f"```yaml\n{example.bad.rstrip()}\n```")
    beside = [f"Beside it: {', '.join(f'`{path}`' for path in example.nested)}."] if example.nested else []
    beside += [
        f"The pack `{path}` holds the {held.role} `{held.spec}`."
        for path, collections in example.packs.items()
        for held in collections
    ]
    if example.launcher:
        beside.append(f"```sh\n{example.launcher.rstrip()}\n```")
    if example.facts is not None:
        beside.append(f"```json\n{json.dumps(example.facts)}\n```")
    if beside:
        lines += ["\nwith\n", *beside]
    if example.profile != "main":
        lines.append(f"\n(with `--upstream {example.profile}`)")
    if example.fixed:
        lines += ["\nPatched:\n", f"```yaml\n{example.fixed.rstrip()}\n```"]
    elif (example.good, example.good_launcher, example.good_facts) != (example.bad, "", None):
        lines += ["\nDoes not:\n", f"```yaml\n{example.good.rstrip()}\n```"]
        if example.good_launcher:
            lines.append(f"\n```sh\n{example.good_launcher.rstrip()}\n```")
        if example.good_facts is not None:
            lines.append(f"\n```json\n{json.dumps(example.good_facts)}\n```")
    return [*lines, ""]


def _lint() -> str:
    assert engine.RULES is RULES  # importing it enters them
    rules = [RULES[name] for name in sorted(RULES)]
    lines = [HEAD + _LINT, "## Versions of upstream\n", "| `--upstream` | stands for |\n|---|---|"]
    lines += [f"| `{item.name}` | {item.about} |" for item in PROFILES.values()]
    lines += ["\n## All rules\n", "| rule | severity | what must be true | where | patch |\n|---|---|---|---|---|"]
    lines += [
        f"| [{item.id}](#{item.id.lower()}) | {item.severity} | {item.title} | {_place(item.where)} "
        f"| {'yes' if item.patch else ''} |"
        for item in rules
    ]
    lines.append("\n## Each rule\n")
    for item in rules:
        lines += _rule(item)
    return "\n".join(lines).rstrip("\n") + "\n"


def main() -> int:
    wrong = 0
    pages = (("settings", _settings), ("errors", _errors), ("findings", _findings), ("lint", _lint))
    for name, make in pages:
        path = FOLDER / f"{name}.md"
        text = make()
        if "--check" not in sys.argv:
            FOLDER.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path.relative_to(FOLDER.parent.parent)} is not what the code says: run scripts/reference.py")
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
