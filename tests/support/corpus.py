"""Small corpora for tests, old enough that their tokens are not racy."""

from __future__ import annotations

import atexit
import io
import json
import os
import shutil
import tarfile
import tempfile
import time
from functools import cache
from pathlib import Path

from blendex.blend.world import World
from blendex.builds.site import Site, open_site
from blendex.builds.submission import Submission
from blendex.catalog import migrate
from blendex.catalog.dialect import open_engine
from blendex.settings import Settings
from blendex.storage.interface import RACY_NS

OLD_NS = 1_700_000_000_000_000_000


def manifest(rows: int, tag: str = "") -> bytes:
    return b"".join(
        json.dumps({"audio_filepath": f"{tag}{i}.wav", "duration": 1.0, "text": "a"}).encode() + b"\n"
        for i in range(rows)
    )


def tar(names: list[str], size: int = 700) -> bytes:
    return tar_of([(name, bytes([number % 250 + 1]) * size) for number, name in enumerate(names)])


def tar_of(members: list[tuple[str, bytes]]) -> bytes:
    """An archive of these names and data."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, ns=(OLD_NS, OLD_NS))
    return path


def wait_until_calm() -> None:
    """Let the files written so far grow older than a racy token may be: ctime cannot be set."""
    time.sleep(RACY_NS / 1e9 + 0.05)


def corpus(folder: Path, shards: int = 3, rows: int = 5, name: str = "a", size: int = 700) -> str:
    """A NeMo-tarred dataset of ``shards`` pairs; the entry of a blend over it."""
    for shard in range(shards):
        put(folder / f"{name}/manifest_{shard}.json", manifest(rows, f"{name}{shard}_"))
        put(folder / f"{name}/audio_{shard}.tar", tar([f"{name}{shard}_{i}.wav" for i in range(rows)], size))
    last = shards - 1
    return (
        f"- type: nemo_tarred\n  manifest_filepath: {folder}/{name}/manifest__OP_0..{last}_CL_.json\n"
        f"  tarred_audio_filepaths: {folder}/{name}/audio__OP_0..{last}_CL_.tar\n  weight: 0.5\n"
    )


@cache
def empty_catalog() -> Path:
    """A catalog as its first opening leaves it: a copy costs a hundredth of the migrations."""
    folder = tempfile.mkdtemp(prefix="blendex-catalog-")
    atexit.register(shutil.rmtree, folder)
    engine = open_engine(f"sqlite:///{folder}/catalog.sqlite")
    migrate.upgrade(engine)
    engine.dispose()
    return Path(folder, "catalog.sqlite")


def site(root: Path, **values: object) -> Site:
    """A site on a fresh or known root, with quick polls."""
    if values.get("database_url") is None and not root.exists():
        root.mkdir(parents=True)
        shutil.copyfile(empty_catalog(), root / "catalog.sqlite")
    settings = Settings.model_validate({"root": root, "poll_seconds": 0.02, "slots": 2, **values})
    return open_site(settings, ("/",))


def submission(blend: str, folder: Path, **values: object) -> Submission:
    """A submission of a blend text that stands in ``folder``."""
    return Submission(
        text=blend.encode(),
        file=f"{folder}/blend.yaml",
        world=World(base=str(folder)),
        **values,  # type: ignore[arg-type]
    )


def sidecars(mirror: str | Path) -> dict[str, bytes]:
    """Every file under idx/, by relative path."""
    top = Path(mirror) / "idx"
    return {str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file()}
