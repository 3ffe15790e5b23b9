"""The trip of a blend: hits, deltas, touches, keys."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from blendex.blend.world import World
from blendex.builds.run import run_build
from blendex.builds.site import Site
from blendex.builds.submission import Submission
from blendex.units.receipt import read_sources
from blendex.units.verify import run as verify
from tests.support.corpus import OLD_NS, corpus, manifest, put, sidecars, submission, wait_until_calm
from tests.support.inline import InlineRunner

OpenSite = Callable[..., Site]
SPEECH = Path(__file__).parent.parent / "data" / "speech"


def ready(site: Site, what: Submission) -> dict[str, object]:
    result = run_build(site, what, runner=InlineRunner())
    assert result["state"] == "ready", result["problems"]
    return result


def test_real_speech_equals_what_upstream_wrote(open_site: OpenSite, tmp_path: Path) -> None:
    world = World(base=str(SPEECH), variables={"data_blend_dir": str(SPEECH)})
    blend = SPEECH / "blend.yaml"
    result = ready(open_site(), Submission(blend.read_bytes(), str(blend), world))
    made = sidecars(str(result["path"]))
    prefix = str(SPEECH).lstrip("/") + "/"
    for relative, data in made.items():
        assert data == (SPEECH / "expected" / relative.removeprefix(prefix)).read_bytes(), relative
    assert len(made) == 17


def test_the_same_blend_again_reads_nothing(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend = corpus(data)
    wait_until_calm()
    first = ready(site, submission(blend, data))
    again = ready(site, submission(blend, data))
    assert again["path"] == first["path"]
    assert (first["opened"], again["opened"]) == (6, 0)
    assert again["id"] != first["id"]


def test_a_mirror_says_what_it_was_made_of(open_site: OpenSite, data: Path) -> None:
    result = ready(open_site(), submission(corpus(data, shards=1, rows=4), data))
    lines = list(read_sources(str(result["path"])))
    assert [(line["kind"], line["records"]) for line in lines] == [("jsonl", 4), ("nemo_tar", 4)]
    receipt = json.loads(Path(str(result["path"]), "receipt.json").read_bytes())
    assert receipt["counts"] == {
        "sources": 2, "records": 8, "bytes": sum(line["size"] for line in lines), "sidecar_bytes": 80,
    }  # fmt: skip
    assert verify({"mirror": result["path"], "sources": True}, lambda _: None)["faults"] == []


def test_verify_names_a_changed_sidecar_and_a_changed_source(open_site: OpenSite, data: Path) -> None:
    result = ready(open_site(), submission(corpus(data, shards=1), data))
    mirror = Path(str(result["path"]))
    sidecar = next(mirror.rglob("manifest_0.json.idx"))
    sidecar.chmod(0o644)
    sidecar.write_bytes(bytes(len(sidecar.read_bytes())))
    put(data / "a/audio_0.tar", b"other")
    found = verify({"mirror": str(mirror), "sources": True}, lambda _: None)
    assert [fault["path"] for fault in found["faults"]] == [str(sidecar.relative_to(mirror))]
    assert found["changed"] == [str(data / "a/audio_0.tar")]


def test_a_delta_reads_only_what_is_new_and_links_the_rest(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend = corpus(data, shards=1000, rows=2)  # 2,000 sources
    wait_until_calm()
    first = ready(site, submission(blend, data))
    new = [put(data / f"b/manifest_{number}.json", manifest(3)) for number in range(3)]
    wait_until_calm()
    delta = blend + f"- {{type: nemo, manifest_filepath: [{', '.join(map(str, new))}]}}\n"
    third = ready(site, submission(delta, data))
    assert (first["opened"], third["opened"]) == (2000, 3)
    assert third["path"] != first["path"]
    for relative in sidecars(str(first["path"])):
        ours, theirs = Path(str(third["path"]), "idx", relative), Path(str(first["path"]), "idx", relative)
        assert ours.samefile(theirs), relative


def test_what_does_not_change_the_key(open_site: OpenSite, data: Path, tmp_path: Path) -> None:
    one = corpus(data, shards=2, name="a")
    two = corpus(data, shards=2, name="b")
    plain = ready(open_site(), submission(one + two, data))
    turned = two.replace("weight: 0.5", "weight: 7, name: other, tags: {x: y}".replace(", ", "\n  ")) + one
    elsewhere = open_site(tmp_path / "elsewhere", slots=1, unit_sources=1, unit_memory_mb=128)
    other = ready(elsewhere, submission(turned, data, allow=("crlf",)))
    assert other["mirror"] == plain["mirror"]
    assert sidecars(str(other["path"])) == sidecars(str(plain["path"]))


def test_a_view_does_not_change_the_key(open_site: OpenSite, data: Path, tmp_path: Path) -> None:
    blend = corpus(data, shards=1)
    plain = ready(open_site(), submission(blend, data))
    moved = tmp_path / "moved"
    shutil.move(data, moved)
    world = World(base=str(data), view=((str(data), str(moved)),))
    result = ready(open_site(tmp_path / "other"), Submission(blend.encode(), f"{data}/blend.yaml", world))
    assert result["mirror"] == plain["mirror"]
    address = next(read_sources(str(result["path"])))["address"]
    assert address.startswith(str(moved))


def test_compat_changes_the_key(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend = corpus(data, shards=1)
    assert (
        ready(site, submission(blend, data))["mirror"]
        != ready(site, submission(blend, data, compat="upstream"))["mirror"]
    )


def test_blank_lines_are_left_out_unless_upstream_is_wanted(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    path = put(data / "m.json", b"\n" + manifest(1) + b"\n \n" + manifest(1))
    blend = f"- {{type: nemo, manifest_filepath: {path}}}\n"
    ours = ready(site, submission(blend, data))
    theirs = ready(site, submission(blend, data, compat="upstream"))
    assert [len(value) // 8 - 1 for value in sidecars(str(ours["path"])).values()] == [2]
    assert [len(value) // 8 - 1 for value in sidecars(str(theirs["path"])).values()] == [5]


def test_a_touched_file_is_a_hit_after_one_read_and_passes_upstreams_freshness_rule(
    open_site: OpenSite, data: Path
) -> None:
    site = open_site()
    blend = corpus(data, shards=2)
    wait_until_calm()
    first = ready(site, submission(blend, data))
    touched = data / "a/manifest_0.json"
    ahead = time.time_ns() + 10**12
    os.utime(touched, ns=(ahead, ahead))
    wait_until_calm()
    second = ready(site, submission(blend, data))
    assert (second["path"], second["opened"]) == (first["path"], 1)
    for relative in sidecars(str(second["path"])):
        index = Path(str(second["path"]), "idx", relative)
        source = Path("/" + relative.removesuffix(".idx"))
        assert source.stat().st_mtime_ns <= index.stat().st_mtime_ns, relative
        assert int.from_bytes(index.read_bytes()[-8:], "little") == source.stat().st_size


def test_a_rewrite_in_place_with_size_and_mtime_restored_is_noticed(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    path = put(data / "m.json", manifest(3))
    blend = f"- {{type: nemo, manifest_filepath: {path}}}\n"
    wait_until_calm()
    first = ready(site, submission(blend, data))
    put(path, manifest(3).replace(b'"a"', b'"b"'))
    assert path.stat().st_mtime_ns == OLD_NS
    wait_until_calm()
    second = ready(site, submission(blend, data))
    assert second["mirror"] != first["mirror"]


def test_a_rewrite_in_the_same_instant_as_the_read_is_noticed(open_site: OpenSite, data: Path) -> None:
    # A file younger than its clock can tell is read again, so even a change that left the token alone is seen.
    site = open_site()
    path = put(data / "m.json", manifest(3))
    blend = f"- {{type: nemo, manifest_filepath: {path}}}\n"
    first = ready(site, submission(blend, data))
    from sqlalchemy import text

    for number in range(5):
        with site.work.read() as session:
            if session.execute(text("SELECT racy FROM sources")).scalar_one():
                break
        # It was read later than two seconds after it was written, which a busy machine may bring about: once more.
        put(path, manifest(4 + number))
        first = ready(site, submission(blend, data))
    put(path, path.read_bytes().replace(b'"a"', b'"b"'))
    with site.work.write() as session:  # the very same token, as on a server with a coarse clock
        stat = path.stat()
        token = f"{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ctime_ns}:{stat.st_ino}"
        assert session.execute(text("UPDATE sources SET token = :token"), {"token": token}).rowcount == 1  # type: ignore[attr-defined]
    second = ready(site, submission(blend, data))
    assert second["opened"] == 1
    assert second["mirror"] != first["mirror"]


def test_without_its_database_the_same_submission_is_a_hit(open_site: OpenSite, data: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    blend = corpus(data)
    wait_until_calm()
    first = ready(open_site(root), submission(blend, data, name="kept"))
    for path in root.glob("catalog.sqlite*"):
        path.unlink()
    site = open_site(root)
    again = ready(site, submission(blend, data))
    assert (again["path"], again["opened"], again["reused"]) == (first["path"], 0, 6)
    from blendex.builds.resolve import Resolver

    assert Resolver(site).name("kept").path == first["path"]
    assert Resolver(site).build(str(first["id"])).path == first["path"]


def test_a_database_of_another_root_is_refused(open_site: OpenSite, tmp_path: Path) -> None:
    from blendex.errors import BlendexError, Code

    url = f"sqlite:///{tmp_path}/shared.sqlite"
    open_site(tmp_path / "one", database_url=url)
    with pytest.raises(BlendexError) as raised:
        open_site(tmp_path / "two", database_url=url)
    assert raised.value.code is Code.CATALOG_MISMATCH
    assert "catalog-id" in str(raised.value)


def test_two_databases_on_one_root_end_in_one_mirror(open_site: OpenSite, data: Path, tmp_path: Path) -> None:
    blend = corpus(data)
    one = open_site(tmp_path / "root", database_url=f"sqlite:///{tmp_path}/one.sqlite")
    two = open_site(tmp_path / "root", database_url=f"sqlite:///{tmp_path}/two.sqlite")
    first, second = ready(one, submission(blend, data)), ready(two, submission(blend, data))
    assert first["path"] == second["path"]
    assert len(os.listdir(tmp_path / "root/mirrors")) == 1


def test_a_lost_object_is_read_again(open_site: OpenSite, data: Path, tmp_path: Path) -> None:
    site = open_site()
    one, two = corpus(data, shards=1, name="a"), corpus(data, shards=1, name="b")
    wait_until_calm()
    ready(site, submission(one, data))
    shutil.rmtree(tmp_path / "root/mirrors")
    os.mkdir(tmp_path / "root/mirrors")
    for name in list(site.root.objects()):
        os.unlink(site.root.object(name))
    result = ready(site, submission(one + two, data))
    assert result["opened"] == 4
    assert verify({"mirror": result["path"], "sources": True}, lambda _: None)["faults"] == []
