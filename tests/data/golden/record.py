"""Records what upstream writes for the sources of ``gen.py`` in ``expected.json``.

Run by an interpreter that has lhotse and NeMo (benchmarks/requirements-oracle.txt): ``python record.py``.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import platform
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def load_nemo() -> Any:
    """NeMo's module of tar indexes by its path: the package itself wants much more to be installed."""
    root = importlib.metadata.distribution("nemo-toolkit").locate_file("")
    path = Path(str(root)) / "nemo/collections/common/data/lhotse/indexed_adapters.py"
    spec = importlib.util.spec_from_file_location("nemo_indexed_adapters", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(create: Callable[[str, str], object], source: Path, folder: Path) -> list[int] | str:
    """Offsets in the sidecar that ``create`` writes, or its error."""
    target = folder / "sidecar.idx"
    target.unlink(missing_ok=True)
    try:
        create(str(source), str(target))
    except Exception as error:  # whatever upstream raises is its answer
        return f"{type(error).__name__}: {error}".replace(f"{folder}/", "")
    data = target.read_bytes()
    return list(struct.unpack(f"<{len(data) // 8}Q", data))


def main() -> None:
    """Writes ``expected.json``."""
    import lhotse.indexing

    sys.path.insert(0, str(HERE))
    import gen

    builders = {
        "jsonl": {"jsonl": lhotse.indexing.create_jsonl_index},
        "tar": {"nemo_tar": load_nemo().create_tar_index, "wds_tar": lhotse.indexing.create_tar_index},
    }
    cases: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        gen.main(folder)
        for name, data in gen.sources():
            cases[name] = {"sha256": hashlib.sha256(data).hexdigest()}
            for kind, create in builders[name.partition("/")[0]].items():
                cases[name][kind] = run(create, folder / name, folder)
    versions = {package: importlib.metadata.version(package) for package in ("lhotse", "nemo-toolkit")}
    head = json.dumps({"python": platform.python_version(), **versions})
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    (HERE / "expected.json").write_text(f'{{\n "written_by": {head},\n "cases": {{\n{rows}\n }}\n}}\n')


if __name__ == "__main__":
    main()
