"""Kinds with several files, derived kinds, and what jobs see: through the whole trip."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from blendex.blend.discover import Source
from blendex.blend.world import World
from blendex.builds.progress import DERIVE_MEMORY
from blendex.builds.run import run_build
from blendex.builds.site import Site
from blendex.builds.submission import Submission
from blendex.catalog import observations
from blendex.formats.sgroute import HEADER, Digests, Input, identity_digest, pack, prefix_digest, spec_digest
from blendex.formats.summary import Origin
from blendex.units import derive
from blendex.units.plan import _collisions
from blendex.units.verify import run as verify
from tests.support import corpus
from tests.support.corpus import OLD_NS, put, tar_of
from tests.support.inline import InlineRunner

OpenSite = Callable[..., Site]


def _run(site: Site, text: str, folder: Path, **values: Any) -> dict[str, Any]:
    return run_build(site, corpus.submission(text, folder, **values), runner=InlineRunner())


def _build(site: Site, text: str, folder: Path, **values: Any) -> tuple[Path, dict[str, Any]]:
    result = _run(site, text, folder, **values)
    assert result["state"] == "ready", result["problems"]
    return Path(result["path"]), result


def _sample(name: str) -> list[tuple[str, bytes]]:
    return [(f"{name}.json", json.dumps({"id": name}).encode()), (f"{name}.flac", name.encode() * 300)]


def _wds(data: Path) -> str:
    for shard in range(2):
        put(data / f"wds/s-{shard}.tar", tar_of(_sample(f"{shard}a") + _sample(f"{shard}b")))
    put(data / "wds/wids-meta.json", b'{"shardlist": [{"url": "s-{0..1}.tar"}]}')
    return f"- {{type: share_gpt_webdataset, data_dir: {data}/wds, wds_sample_index_version: 2}}\n"


def test_webdataset_of_version_two(open_site: OpenSite, data: Path) -> None:
    site, text = open_site(), _wds(data)
    corpus.wait_until_calm()
    mirror, _ = _build(site, text, data)
    files = corpus.sidecars(mirror)
    stem = f"{data}/wds/s-0.tar".lstrip("/")
    assert sorted(files) == [
        f"{data}/wds/s-{n}.tar.wds-v2.idx{end}".lstrip("/") for n in (0, 1) for end in ("", ".meta.json")
    ]
    index = files[f"{stem}.wds-v2.idx"]
    metadata = json.loads(files[f"{stem}.wds-v2.idx.meta.json"])
    size = (data / "wds/s-0.tar").stat().st_size
    assert struct.unpack("<3Q", index) == (0, 2560, size)
    assert metadata["offsets_sha256"] == hashlib.sha256(index).hexdigest()
    assert metadata["source"] == {
        "mtime_ns": OLD_NS, "object_identity": None, "path": f"{data}/wds/s-0.tar", "size_bytes": size,
    }  # fmt: skip
    again, row = _build(site, text, data)
    assert (again, row["opened"]) == (mirror, 0)


def test_a_touch_makes_another_mirror_of_the_same_offsets(open_site: OpenSite, data: Path) -> None:
    site, text = open_site(), _wds(data)
    corpus.wait_until_calm()
    mirror, _ = _build(site, text, data)
    os.utime(data / "wds/s-0.tar", ns=(OLD_NS + 5, OLD_NS + 5))
    other, row = _build(site, text, data)
    assert other != mirror
    assert row["opened"] == 1
    name = f"idx/{data}/wds/s-0.tar.wds-v2.idx".replace("//", "/")
    assert (mirror / name).stat().st_ino == (other / name).stat().st_ino
    assert json.loads((other / f"{name}.meta.json").read_bytes())["source"]["mtime_ns"] == OLD_NS + 5
    assert json.loads((mirror / f"{name}.meta.json").read_bytes())["source"]["mtime_ns"] == OLD_NS
    for folder in (mirror, other):
        report = verify({"mirror": str(folder), "sources": False}, lambda _: None)
        assert (report["sources"], report["faults"]) == (2, [])
    os.chmod(other, 0o755)
    metadata = other / f"{name}.meta.json"
    os.chmod(metadata.parent, 0o755)
    os.chmod(metadata, 0o644)
    metadata.write_bytes(b"{}")
    (fault,) = verify({"mirror": str(other), "sources": False}, lambda _: None)["faults"]
    assert fault["path"].endswith("meta.json")


def test_nemo_and_webdataset_of_version_two_on_one_tar_do_not_collide(open_site: OpenSite, data: Path) -> None:
    text = _wds(data) + f"- {{type: nemotron_text_converation, paths: {data}/wds/s-0.tar}}\n"
    mirror, _ = _build(open_site(), text, data, allow=("merged_directories",))
    assert len(corpus.sidecars(mirror)) == 5


def _collection(data: Path) -> str:
    def row(audio: object) -> bytes:
        turns = [{"from": "human", "value": "<sound>"}, {"from": "gpt", "value": "a"}]
        return json.dumps({"id": 1, "sound": audio, "conversations": turns}).encode() + b"\n"

    put(data / "c/m_0.jsonl", row("b.wav") + row("x/c.wav"))
    put(data / "c/m_1.jsonl", b"\n" + row("/old/a.wav"))
    put(data / "c/audio_0.tar", corpus.tar(["a.wav", "b.wav"]))
    put(data / "c/audio_1.tar", corpus.tar(["x/c.wav"]))
    return (
        f"- type: share_gpt\n  tar_lookup_mode: collection\n  manifest_filepath: '{data}/c/m_{{0..1}}.jsonl'\n"
        f"  tarred_audio_filepaths: '{data}/c/audio_{{0..1}}.tar'\n  tar_routing_filepath: routes/all.sgroute\n"
        "  audio_path_prefix_map: {/old/: s3://b/new}\n"
    )


def _expected_route(data: Path, text: str) -> bytes:
    """As upstream's builder and digests say, from stat and hashes alone."""

    def inputs(names: list[str]) -> list[Input]:
        found = []
        for name in names:
            stat = (data / name).stat()
            found.append(Input(Origin(f"{data}/{name}", stat.st_size, stat.st_mtime_ns), stat.st_dev, stat.st_ino, ""))
        return found

    content = hashlib.sha256()
    for number in range(2):
        raw = (data / f"c/m_{number}.jsonl").read_bytes()
        content.update(len(raw).to_bytes(8, "little") + raw)
    spec = yaml.safe_load(text)[0]["manifest_filepath"]
    digests = Digests(
        spec_digest([f"{data}/c/m_{n}.jsonl" for n in range(2)], [spec] * 2),
        content.digest(),
        identity_digest(inputs(["c/m_0.jsonl", "c/m_1.jsonl"])),
        identity_digest(inputs(["c/audio_0.tar", "c/audio_1.tar"])),
        prefix_digest({"/old": "s3://b/new"}),
    )
    return pack([[(0, 1)], [(1, 0)], [(0, 0)]], 2, digests)


def test_a_route_is_derived_and_the_ready_blend_points_at_it(open_site: OpenSite, data: Path) -> None:
    site, text = open_site(), _collection(data)
    corpus.wait_until_calm()
    mirror, row = _build(site, text, data)
    route = mirror / "idx/routes/all.sgroute"
    assert route.read_bytes() == _expected_route(data, text)
    ready = yaml.safe_load(Path(site.root.build(row["id"]), "blend.yaml").read_text())
    assert ready[0]["tar_routing_filepath"] == str(route)
    lines = [json.loads(line) for line in (mirror / "sources.jsonl").read_bytes().splitlines()]
    (line,) = [line for line in lines if line["kind"] == "sharegpt_route"]
    assert line["valid_on"]["devices"] == [(data / "c/m_0.jsonl").stat().st_dev]
    assert len(corpus.sidecars(mirror)) == 5
    again, row = _build(site, text, data)
    assert (again, row["opened"]) == (mirror, 0)


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_what_deriving_takes_is_learnt_by_the_records_it_goes_through(open_site: OpenSite, data: Path) -> None:
    site, text = open_site(), _collection(data)
    runner = InlineRunner()
    run_build(site, corpus.submission(text, data), runner=runner)
    (call,) = [call for call in runner.calls if call.function.startswith("blendex.units.derive")]
    assert call.memory == DERIVE_MEMORY
    told: list[dict[str, Any]] = []
    derive.run(call.arguments | {"attempt": "x.9-9"}, told.append)
    sort = told[0]["sort"]
    assert sort == "sharegpt_route:file:1"  # 2 + 1 rows, 2 + 1 members
    with site.work.write() as session:
        for _ in range(observations.ENOUGH):
            observations.record(session, {sort: 40 * 2**20}, 0)
    os.utime(data / "c/m_0.jsonl", ns=(OLD_NS + 1, OLD_NS + 1))
    again = InlineRunner()
    run_build(site, corpus.submission(text, data), runner=again)
    (call,) = [call for call in again.calls if call.function.startswith("blendex.units.derive")]
    assert call.memory == 40 * 2**20 * observations.MARGIN + observations.BASE_BYTES


def test_a_route_follows_its_inputs(open_site: OpenSite, data: Path) -> None:
    site, text = open_site(), _collection(data)
    corpus.wait_until_calm()
    mirror, _ = _build(site, text, data)
    os.utime(data / "c/audio_1.tar", ns=(OLD_NS + 5, OLD_NS + 5))
    other, _ = _build(site, text, data)
    assert other != mirror
    assert (other / "idx/routes/all.sgroute").read_bytes() == _expected_route(data, text)
    assert HEADER.unpack_from((other / "idx/routes/all.sgroute").read_bytes())[5:8] == (3, 3, 2)


def test_another_blend_of_the_same_collection_finds_its_route(open_site: OpenSite, data: Path) -> None:
    site, text = open_site(), _collection(data)
    corpus.wait_until_calm()
    mirror, _ = _build(site, text, data)
    again, row = _build(site, text + f"  # {data}\n  weight: 2\n", data)
    assert (again, row["opened"]) == (mirror, 0)


def test_a_broken_row_names_the_manifest_and_not_its_text(open_site: OpenSite, data: Path) -> None:
    text = _collection(data)
    put(data / "c/m_1.jsonl", (data / "c/m_1.jsonl").read_bytes().replace(b"/old/a.wav", b"secret.wav"))
    row = _run(open_site(), text, data)
    assert row["state"] == "failed"
    assert row["error"]["code"] == "route_broken"
    assert row["error"]["message"].startswith("row 0 names audio that no tar")
    assert row["error"]["byte"] == 0
    assert "secret" not in json.dumps(row["error"])


def test_a_bad_input_takes_its_route_along_and_nothing_else(open_site: OpenSite, data: Path) -> None:
    text = _collection(data) + corpus.corpus(data)
    put(data / "c/audio_1.tar", b"no tar at all" * 100)
    site = open_site()
    row = _run(site, text, data, on_bad="exclude")
    assert row["state"] == "ready"
    assert [item["pointer"] for item in row["excluded"]] == [[0]]
    assert not any("sgroute" in name for name in corpus.sidecars(row["path"]))


def test_two_entries_cannot_share_a_route(open_site: OpenSite, data: Path) -> None:
    text = _collection(data)
    row = _run(open_site(), text + text.replace("s3://b/new", "s3://b/other"), data)
    assert row["state"] == "failed"
    assert row["error"]["code"] == "index_path_collision"
    ready = _run(open_site(data.parent / "r2"), text + text, data)
    assert ready["state"] == "ready"


def test_an_upstream_build_routes_the_rows_that_upstream_has(open_site: OpenSite, data: Path) -> None:
    row = _run(open_site(), _collection(data), data, compat="upstream")
    assert row["state"] == "failed"  # upstream has a record for the blank line, which has no route
    assert row["error"]["code"] == "route_broken"


def test_a_job_reads_through_the_prefix_it_knows(open_site: OpenSite, data: Path, tmp_path: Path) -> None:
    """The corpus lies elsewhere for the worker; the job sees it as /data, through a view with several prefixes."""
    corpus.corpus(data / "lustre/x", 2)
    put(data / "scratch/more.json", corpus.manifest(3))
    view = (("/data", f"{data}/lustre/x"), ("/data/b", f"{data}/scratch"), ("/lustre", f"{data}/lustre"))
    text = (
        "- {type: nemo_tarred, manifest_filepath: '/data/a/manifest_{0..1}.json', "
        "tarred_audio_filepaths: '/data/a/audio_{0..1}.tar'}\n"
        "- {type: nemo, manifest_filepath: /data/b/more.json}\n"
        "- {type: nemo, manifest_filepath: /lustre/x/a/manifest_0.json}\n"
    )
    site = open_site()
    submission = Submission(text=text.encode(), file="/data/blend.yaml", world=World(view=view))
    row = run_build(site, submission, runner=InlineRunner())
    assert row["state"] == "ready", row["error"]
    assert row["opened"] == 5  # the last entry names a file that was read under its other name
    mirror = Path(row["path"])
    root = tmp_path / "job"  # what / looks like from inside the job
    root.mkdir()
    (root / "data").symlink_to(data / "lustre/x")
    ready = yaml.safe_load(Path(site.root.build(row["id"]), "blend.yaml").read_text())
    for entry in ready[:1]:
        assert entry["indexes_root"] == str(mirror / "idx")
        for number in range(2):
            seen = entry["manifest_filepath"].replace("{0..1}", str(number))
            index = Path(entry["indexes_root"] + seen + ".idx")  # the rule of upstream
            offsets = struct.unpack(f"<{index.stat().st_size // 8}Q", index.read_bytes())
            raw = (root / seen.lstrip("/")).read_bytes()
            assert offsets[-1] == len(raw)
            rows = [json.loads(raw[start:end]) for start, end in pairwise(offsets)]
            assert [r["audio_filepath"] for r in rows] == [f"a{number}_{i}.wav" for i in range(5)]
    assert (mirror / "idx/data/b/more.json.idx").exists()
    assert (mirror / "idx/lustre/x/a/manifest_0.json.idx").exists()


def test_one_file_in_two_spellings_has_one_sidecar(open_site: OpenSite, data: Path) -> None:
    put(data / "m.jsonl", corpus.manifest(3))
    site = open_site()
    corpus.wait_until_calm()
    text = "".join(f"- {{type: nemo, manifest_filepath: {path}}}\n" for path in ("m.jsonl", "./m.jsonl", ".//m.jsonl"))
    mirror, row = _build(site, text, data)
    assert list(corpus.sidecars(mirror)) == ["m.jsonl.idx"]
    assert (row["sources"], row["opened"]) == (3, 1)
    assert verify({"mirror": str(mirror), "sources": True}, lambda _: None)["faults"] == []
    more = put(data / "more.jsonl", corpus.manifest(1))
    corpus.wait_until_calm()
    other, row = _build(site, text + f"- {{type: nemo, manifest_filepath: {more}}}\n", data)
    assert (len(corpus.sidecars(other)), row["opened"]) == (2, 1)
    assert (other / "idx/m.jsonl.idx").stat().st_ino == (mirror / "idx/m.jsonl.idx").stat().st_ino


def test_two_files_on_one_sidecar_collide(open_site: OpenSite, data: Path) -> None:
    put(data / "m.jsonl", corpus.manifest(3))
    put(data / "other/m.jsonl", corpus.manifest(2))
    path = str(data / "m.jsonl")
    # Relative to a base elsewhere, the index rule makes the same of both.
    put(data / "base" / path.lstrip("/"), corpus.manifest(2))
    text = f"- {{type: nemo, manifest_filepath: {path}}}\n- {{type: nemo, manifest_filepath: {path.lstrip('/')}}}\n"
    row = _run(open_site(), text, data / "base")
    assert (row["state"], row["error"]["code"]) == ("failed", "index_path_collision")


def test_a_kind_that_holds_its_path_collides_in_two_spellings() -> None:
    """The metadata of a WebDataset index names its source as it is spelled: only one spelling could be read."""
    world = World(base="/data")
    for kind, expected in (("wds_tar_v2", 2), ("sharegpt_route", 2), ("wds_tar", 0)):
        two = [Source(kind, "./a.tar"), Source(kind, "a.tar")]
        found = list(_collisions(world, two, {source: [number] for number, source in enumerate(two)}))
        assert len(found) == expected, kind
