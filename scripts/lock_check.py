"""Do requirements/*.txt still answer pyproject.toml? Offline: nothing is resolved, only compared.

Wrong is: a requirement without a locked version that fits it, a version without a hash, a line that names an
index or a URL, and a version that dev.txt does not hold (one environment must be able to take every file).
A package may have several versions in one file, each under its own marker: newer Pythons get newer numpy.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
#: file -> (extras, dependency groups) it must answer beside the project's own dependencies; the largest first
FILES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "dev.txt": (("serve", "postgres", "workers"), ("dev",)),
    "cluster.txt": (("serve", "postgres", "workers"), ("build",)),
    "serve.txt": (("serve",), ("build",)),
    "base.txt": ((), ()),
}
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")


def locked(text: str, complain: list[str]) -> dict[NormalizedName, set[Version]]:
    """The pins of one file, by canonical name; whatever is not a pin with a hash goes to ``complain``."""
    pins: dict[NormalizedName, set[Version]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        pin = _PIN.match(line)
        if pin is None or "://" in line:
            complain.append(f"not a plain pin: {line[:60]!r}")
            continue
        name = canonicalize_name(pin["name"])
        if not _HASH.search(line):
            complain.append(f"{name} has no hash")
        if name in pins and ";" not in line.partition("--hash")[0]:
            complain.append(f"{name} is locked twice without a marker")
        pins.setdefault(name, set()).add(Version(pin["version"]))
    return pins


def group(table: dict[str, Any], name: str) -> Iterator[Requirement]:
    """The requirements of one dependency group, with the groups it includes."""
    for item in table[name]:
        if isinstance(item, str):
            yield Requirement(item)
        else:
            yield from group(table, item["include-group"])


def wanted(pyproject: dict[str, Any], extras: tuple[str, ...], groups: tuple[str, ...]) -> Iterator[Requirement]:
    """What one file must hold at least."""
    project = pyproject["project"]
    yield from map(Requirement, project["dependencies"])
    for extra in extras:
        yield from map(Requirement, project["optional-dependencies"][extra])
    for name in groups:
        yield from group(pyproject["dependency-groups"], name)


def main() -> int:
    """Print every difference; 0 when there is none."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    complaints: list[str] = []
    every: dict[NormalizedName, set[Version]] = {}
    for file, (extras, groups) in FILES.items():
        here: list[str] = []
        pins = locked((ROOT / "requirements" / file).read_text(encoding="utf-8"), here)
        every = every or pins
        for requirement in wanted(pyproject, extras, groups):
            name = canonicalize_name(requirement.name)
            if name == canonicalize_name(pyproject["project"]["name"]):
                continue  # an extra that names other extras of this project
            if name not in pins:
                here.append(f"{requirement} is not locked")
            here += [
                f"{requirement} is locked at {version}"
                for version in sorted(pins.get(name, ()))
                if not requirement.specifier.contains(version, prereleases=True)
            ]
        for name, versions in pins.items():
            if versions - every.get(name, set()):
                here.append(f"{name} has versions that dev.txt does not lock")
        complaints += [f"requirements/{file}: {text}" for text in here]
    for text in complaints:
        print(text, file=sys.stderr)
    if complaints:
        print("Run scripts/lock.sh and commit what it writes.", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
