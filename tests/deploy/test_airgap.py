"""What the archive for sites without registries is made with. The whole of it is made and proven by ``make airgap``."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    spec = importlib.util.spec_from_file_location("blendex_sbom", HERE / "scripts" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_bill_names_what_is_locked_and_is_the_same_every_time(sbom: ModuleType) -> None:
    text = (HERE / "requirements" / "cluster.txt").read_text()
    bill = sbom.bill(text, "1.2.3", None)
    assert bill == sbom.bill(text, "1.2.3", None)
    pins = re.findall(r"^([A-Za-z0-9._-]+)==", text, re.MULTILINE)
    assert {part["name"] for part in bill["components"]} == {sbom.canonical(name) for name in pins}
    references = [part["bom-ref"] for part in bill["components"]]
    assert len(set(references)) == len(references) > 50
    assert bill["dependencies"][0]["dependsOn"] == references
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    said = subprocess.run(
        [sys.executable, "scripts/sbom.py", "requirements/cluster.txt"], cwd=HERE, capture_output=True, check=True
    )
    assert json.loads(said.stdout)["bomFormat"] == "CycloneDX"


def wheel(folder: Path, name: str, metadata: str) -> str:
    """A wheel of nothing but metadata; its hash."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(
            f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{metadata}"
        )
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_wheels_give_hashes_and_licences_and_must_be_the_locked_ones(sbom: ModuleType, tmp_path: Path) -> None:
    hashes = {
        "spdx_one": wheel(tmp_path, "spdx_one", "License-Expression: MIT OR Apache-2.0\n"),
        "classified": wheel(tmp_path, "classified", "Classifier: License :: OSI Approved :: BSD License\n"),
        "silent": wheel(tmp_path, "silent", ""),
    }
    text = "".join(f"{name.replace('_', '-')}==1.0 \\\n    --hash=sha256:{item}\n" for name, item in hashes.items())
    text += f"elsewhere==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:{'0' * 64}\n"
    parts = {part["name"]: part for part in sbom.bill(text, "1", tmp_path)["components"]}
    assert parts.keys() == {"spdx-one", "classified", "silent"}
    assert parts["spdx-one"]["licenses"] == [{"expression": "MIT OR Apache-2.0"}]
    assert parts["classified"]["licenses"] == [{"license": {"name": "BSD License"}}]
    assert "licenses" not in parts["silent"]
    assert parts["silent"]["hashes"] == [{"alg": "SHA-256", "content": hashes["silent"]}]
    with pytest.raises(SystemExit, match="not what is locked"):
        sbom.bill(text.replace(hashes["silent"], "1" * 64), "1", tmp_path)


def test_offline_has_loopback_and_nothing_else() -> None:
    code = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5):
    pass
try:
    socket.create_connection(("192.0.2.1", 80), 5)
except OSError as error:
    print(type(error).__name__, error.errno)
"""
    result = subprocess.run(
        [str(HERE / "scripts" / "offline.sh"), sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    if result.returncode == 69:
        pytest.skip(result.stderr.strip())
    assert result.stdout == "OSError 101\n", result.stdout + result.stderr  # network is unreachable


def test_the_proof_installs_as_the_image_does() -> None:
    image = (HERE / "Dockerfile").read_text()
    proof = (HERE / "scripts" / "airgap-proof.sh").read_text()
    for words in ("--require-hashes --requirement requirements/cluster.txt", "--find-links wheelhouse",
                  "--no-index --no-deps --no-build-isolation ."):  # fmt: skip
        assert words in image
        assert words in proof
    assert "!wheelhouse" in (HERE / ".dockerignore").read_text()
