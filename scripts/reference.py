"""Write docs/reference/*.md from the code, so that they cannot differ. ``--check``: are they as the code says?"""

from __future__ import annotations

import sys
from pathlib import Path

from pydantic_core import PydanticUndefined

from blendex.errors import MEANING, Code
from blendex.formats.crosscheck import CROSS_FINDINGS
from blendex.formats.findings import FINDINGS
from blendex.settings import Settings
from service.problems import STATUS

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
HEAD = "<!-- Written by scripts/reference.py from the code: change it there. -->\n\n"


def _settings() -> str:
    lines = [
        HEAD + "# Settings\n\nEvery process reads them from the environment; the command line overrides some.\n",
        "| variable | default | what it is |\n|---|---|---|",
    ]
    dynamic = {"slots": "number of cores", "state_dir": "`$XDG_STATE_HOME/blendex` or `~/.local/state/blendex`"}
    for name, field in Settings.model_fields.items():
        default = dynamic.get(name)
        if default is None:
            assert field.default is not PydanticUndefined
            default = "none" if field.default in (None, ()) else f"`{field.default}`"
        lines.append(f"| `BLENDEX_{name.upper()}` | {default} | {field.description} |")
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


def main() -> int:
    wrong = 0
    for name, make in (("settings", _settings), ("errors", _errors), ("findings", _findings)):
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
