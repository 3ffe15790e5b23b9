"""Write what the chart says twice: the table of values in its README, from comments of values.yaml, and ``settings`` in
values.schema.json, from the settings of the program. ``--check``: are they as they should be?
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from blendex.settings import Settings

CHART = Path(__file__).parent.parent / "helm" / "blendex"
BEGIN, END = "<!-- values: scripts/chart_reference.py -->", "<!-- end of values -->"
# What the chart knows by itself, or takes from values of its own.
OWN = {
    "root", "state_dir", "database_url", "broker_url", "migrate", "allowed_roots", "slots", "classes", "budget_mb",
    "drain_seconds", "metrics_port", "log_format",
}  # fmt: skip
KEPT = ("type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def values() -> Iterator[tuple[str, str, str]]:
    """(name, default, meaning) of every value that has a comment ``# -- …``."""
    path: list[tuple[int, str]] = []
    said: list[str] = []
    for line in (CHART / "values.yaml").read_text().splitlines():
        comment = re.match(r"\s*# (-- )?(.*)", line)
        if comment is not None:
            if comment[1]:
                said = [comment[2]]
            elif said:
                said.append(comment[2])
            continue
        key = re.match(r"(\s*)([A-Za-z]+):\s*(.*)", line)
        if key is None:
            said = []
            continue
        depth = len(key[1])
        path = [item for item in path if item[0] < depth] + [(depth, key[2])]
        if said:
            yield ".".join(name for _, name in path), key[3] or "see values.yaml", " ".join(said)
        said = []


def readme() -> str:
    """The README with the table as it should be."""
    text = (CHART / "README.md").read_text()
    rows = [f"| `{name}` | `{default}` | {meaning} |" for name, default, meaning in values()]
    table = "\n".join(["| value | default | what it is |", "|---|---|---|", *rows])
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.split(END)[1]}"


def _simple(field: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" in field:
        choices = [_simple(item) for item in field["anyOf"] if item != {"type": "null"}]
        return choices[0] if len(choices) == 1 else {"anyOf": choices}
    return {key: field[key] for key in KEPT if key in field}


def schema() -> str:
    """The schema with the settings as they are."""
    whole = json.loads((CHART / "values.schema.json").read_text())
    known = Settings.model_json_schema()["properties"]
    settings = {
        name: _simple(field)
        for name, field in sorted(known.items())
        if name not in OWN and "writeOnly" not in json.dumps(field)  # a secret has no place in a ConfigMap
    }
    whole["properties"]["settings"] = {"type": "object", "additionalProperties": False, "properties": settings}
    return json.dumps(whole, indent=2) + "\n"


def main() -> int:
    """Write, or compare."""
    wrong = 0
    for name, make in (("README.md", readme), ("values.schema.json", schema)):
        path = CHART / name
        text = make()
        if "--check" not in sys.argv:
            path.write_text(text)
        elif path.read_text() != text:
            print(f"helm/blendex/{name} is not what values.yaml and settings.py say: run scripts/chart_reference.py")
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
