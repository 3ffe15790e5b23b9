"""The report of findings: cross checks, per class and per source, over API and command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blendex.builds import findings
from blendex.builds.run import run_build
from blendex.builds.site import Site
from blendex.catalog import builds
from tests.support import corpus
from tests.support.corpus import put
from tests.support.inline import InlineRunner

OpenSite = Callable[..., Site]
SECRET = "what nobody may see"


def _rows(*names: str, **more: object) -> bytes:
    rows = ({"audio_filepath": name, "duration": 1.0, "text": SECRET, **more} for name in names)
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _report(site: Site, text: str, data: Path, **values: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    result = run_build(site, corpus.submission(text, data, **values), runner=InlineRunner())
    with site.work.read() as session:
        row = builds.get(session, result["id"])
        assert row is not None
        report = findings.report(site, session, row)
    assert SECRET not in json.dumps(report)
    json.dumps(report)
    return result, report


def _named(report: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {item["name"]: (item["count"], item["sources"]) for item in report["findings"]}


def _pair(data: Path, names: list[str], rows: bytes) -> str:
    put(data / "manifest_0.json", rows)
    put(data / "audio_0.tar", corpus.tar(names))
    return (
        f"- {{type: nemo_tarred, manifest_filepath: {data}/manifest_0.json, "
        f"tarred_audio_filepaths: {data}/audio_0.tar}}\n"
    )


def test_what_a_pair_says_of_each_other(open_site: OpenSite, data: Path) -> None:
    rows = _rows("b.wav", "a.wav", "gone.wav") + _rows("c.wav", _skipme=True) + b"\n"
    site, text = open_site(), _pair(data, ["a.wav", "b.wav", "left.wav"], rows)
    corpus.wait_until_calm()
    result, report = _report(site, text, data)
    assert result["state"] == "ready"
    assert report["counts"] == {"refuse": 0, "warn": 2, "note": 3}
    assert _named(report) == {
        "blank_line": (1, 1), "member_missing": (1, 1), "member_without_row": (1, 1), "order_differs": (1, 1),
        "skipped_row": (1, 1),
    }  # fmt: skip
    (missing,) = [item for item in report["findings"] if item["name"] == "member_missing"]
    (first,) = missing["first"]
    assert (first["path"], first["places"]) == (f"{data}/manifest_0.json", [2])
    (blank,) = [item for item in report["findings"] if item["name"] == "blank_line"]
    assert blank["first"][0]["command"].startswith("grep -v")
    assert (report["compared"], report["not_compared"], report["more"]) == (1, 0, 0)
    again, same = _report(site, text, data)
    assert again["opened"] == 0
    assert same["findings"] == report["findings"]


def test_sources_that_were_read_before_anybody_asked_are_told(open_site: OpenSite, data: Path) -> None:
    site, text = open_site(), _pair(data, ["a.wav"], _rows("a.wav"))
    alone = f"- {{type: nemotron_text_converation, paths: {data}/audio_0.tar}}\n"
    corpus.wait_until_calm()
    _report(site, alone, data)
    _, report = _report(site, text, data)
    assert (report["compared"], report["not_compared"]) == (0, 1)


def test_a_failed_build_says_what_was_found(open_site: OpenSite, data: Path) -> None:
    text = _pair(data, ["a.wav"], b"\xef\xbb\xbf" + _rows("a.wav"))
    result, report = _report(open_site(), text, data)
    assert result["state"] == "failed"
    assert _named(report)["bom"] == (1, 1)
    assert report["findings"][0]["severity"] == "refuse"
    assert report["findings"][0]["allowed"] is False
    assert "tail -c +4" in report["findings"][0]["first"][0]["command"]


def test_sidecars_beside_sources(open_site: OpenSite, data: Path) -> None:
    text = _pair(data, ["a.wav"], _rows("a.wav"))
    size = (data / "manifest_0.json").stat().st_size
    put(data / "manifest_0.json.idx", b"".join(n.to_bytes(8, "little") for n in (0, size)))
    put(data / "audio_0.tar.idx", b"\0" * 12)
    _, report = _report(open_site(), text, data)
    (item,) = report["findings"]
    assert (item["name"], item["count"]) == ("sidecar_beside_disagrees", 1)
    assert item["first"][0]["path"] == f"{data}/audio_0.tar"
    assert "12 bytes are no whole numbers" in item["first"][0]["detail"]
    assert item["first"][0]["command"] == f"rm {data}/audio_0.tar.idx"


def test_cuts_and_rows_under_the_wrong_key(open_site: OpenSite, data: Path) -> None:
    put(data / "cuts.json", b'{"id": "a", "start": 0, "duration": 1, "channel": 0, "type": "MonoCut"}\n')
    put(data / "rows.jsonl", _rows("a.wav"))
    text = f"- {{type: nemo, manifest_filepath: {data}/cuts.json}}\n- {{type: lhotse, cuts_path: {data}/rows.jsonl}}\n"
    _, report = _report(open_site(), text, data)
    assert _named(report) == {"cuts_as_manifest": (1, 1), "manifest_as_cuts": (1, 1)}


def test_a_manifest_for_several_tars(open_site: OpenSite, data: Path) -> None:
    rows = _rows("a.wav", shard_id=0) + _rows("b.wav", shard_id=1) + _rows("a.wav", shard_id="0") + _rows("b.wav")
    put(data / "all.json", rows)
    for number, name in enumerate(("a.wav", "b.wav")):
        put(data / f"audio_{number}.tar", corpus.tar([name]))
    tars = f"'{data}/audio_{{0..1}}.tar'"
    text = f"- {{type: nemo_tarred, manifest_filepath: {data}/all.json, tarred_audio_filepaths: {tars}}}\n"
    _, report = _report(open_site(), text, data)
    assert _named(report) == {"bad_shard_id": (2, 1)}
    assert report["findings"][0]["first"][0]["places"] == [2, 3]


def test_an_adopted_build_keeps_its_findings(open_site: OpenSite, data: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.sqlite"
    site, text = open_site(database_url=url), _pair(data, ["a.wav"], _rows("a.wav", "gone.wav") + b"\n")
    result, report = _report(site, text, data)
    site.work.engine.dispose()
    for file in tmp_path.glob("catalog.sqlite*"):
        file.unlink()
    again = open_site(database_url=url)
    with again.work.read() as session:
        row = builds.get(session, result["id"])
        assert row is not None
        assert row.plan is None
        adopted = findings.report(again, session, row)
    assert adopted["findings"] == report["findings"]


def test_many_sources_are_counted_and_the_first_told(open_site: OpenSite, data: Path) -> None:
    for number in range(12):
        put(data / f"m_{number}.json", _rows("a.wav") + b"\n")
    text = f"- {{type: nemo, manifest_filepath: '{data}/m_{{0..11}}.json'}}\n"
    site = open_site()
    result, report = _report(site, text, data)
    (item,) = report["findings"]
    assert (item["count"], item["sources"], len(item["first"])) == (12, 12, findings.FIRST)
    with site.work.read() as session:
        row = builds.get(session, result["id"])
        assert row is not None
        short = findings.report(site, session, row, limit=2)
    assert (len(short["sources"]), short["more"]) == (2, 10)
