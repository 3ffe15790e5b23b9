"""Write a bill of materials (CycloneDX 1.6, JSON) of a file of locked requirements to standard output.

    python scripts/sbom.py requirements/cluster.txt [WHEELHOUSE]

With a folder of wheels, each component has the hash of its wheel, which must be one that is locked, and the licence
that the wheel declares. Packages that the folder has no wheel of are left out: they are not for this platform. The same
input gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
import zipfile
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})\b")
_NAMESPACE = uuid.UUID("5d1f6a0e-7c34-5b0e-9a2e-3f0c6f0b7a11")


@dataclass(frozen=True)
class Pin:
    """One locked package."""

    name: str
    version: str
    hashes: frozenset[str]

    @property
    def purl(self) -> str:
        """Its package URL."""
        return f"pkg:pypi/{self.name}@{self.version}"


def canonical(name: str) -> str:
    """The name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> list[Pin]:
    """Every pin of a locked file, by name."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        pin = _PIN.match(line)
        if pin is not None:
            found.append(Pin(canonical(pin["name"]), pin["version"], frozenset(_HASH.findall(line))))
    return sorted(found, key=lambda item: (item.name, item.version))


def wheels(folder: Path) -> dict[tuple[str, str], Path]:
    """The wheels of a folder by name and version."""
    found = {}
    for path in sorted(folder.glob("*.whl")):
        name, version = path.name.split("-")[:2]
        found[canonical(name), version] = path
    return found


def licence(wheel: Path) -> list[dict[str, Any]]:
    """What a wheel says of its licence: an SPDX expression, or a name; nothing when it says nothing short."""
    with zipfile.ZipFile(wheel) as file:
        inside = next(name for name in file.namelist() if name.count("/") == 1 and name.endswith(".dist-info/METADATA"))
        headers = HeaderParser().parsestr(file.read(inside).decode())
    if expression := headers["License-Expression"]:
        return [{"expression": expression}]
    classifiers = headers.get_all("Classifier", ())
    classified = [item.rpartition(" :: ")[2] for item in classifiers if item.startswith("License")]
    named = classified or [text for text in [headers["License"] or ""] if 0 < len(text) < 80 and "\n" not in text]
    return [{"license": {"name": name}} for name in named]


def component(pin: Pin, wheel: Path | None) -> dict[str, Any]:
    """One package as CycloneDX has it."""
    made: dict[str, Any] = {
        "type": "library", "bom-ref": pin.purl, "name": pin.name, "version": pin.version, "purl": pin.purl,
    }  # fmt: skip
    if wheel is not None:
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if digest not in pin.hashes:
            raise SystemExit(f"{wheel} is not what is locked: sha256 {digest}")
        made["hashes"] = [{"alg": "SHA-256", "content": digest}]
        if licences := licence(wheel):
            made["licenses"] = licences
    return made


def bill(text: str, version: str, folder: Path | None) -> dict[str, Any]:
    """The whole document.

    Args:
        text: a locked file.
        version: of Blendex.
        folder: wheels; None: what is locked for any platform.
    """
    have = None if folder is None else wheels(folder)
    parts = [
        component(pin, None if have is None else have[pin.name, pin.version])
        for pin in pins(text)
        if have is None or (pin.name, pin.version) in have
    ]
    root = f"pkg:pypi/blendex@{version}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, json.dumps(parts, sort_keys=True))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "bom-ref": root, "name": "blendex", "version": version, "purl": root,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": parts,
        "dependencies": [{"ref": root, "dependsOn": [part["bom-ref"] for part in parts]}],
    }  # fmt: skip


def main() -> None:
    """Print the bill of a locked file."""
    from blendex.version import __version__

    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    json.dump(bill(Path(sys.argv[1]).read_text(), __version__, folder), sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
