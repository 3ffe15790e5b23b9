"""One bad source never takes another one down, and a build names all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from blendex.builds import control
from blendex.builds.run import run_build, work_until_ended
from blendex.builds.site import Site
from blendex.errors import BlendexError, Code
from tests.support.corpus import corpus, manifest, put, sidecars, submission, wait_until_calm
from tests.support.inline import InlineRunner

OpenSite = Callable[..., Site]


def bad_blend(data: Path) -> str:
    """A good dataset, then four bad leaves of four sorts."""
    good = corpus(data, shards=2)
    put(data / "half.json", manifest(2) + b'{"audio_filepath": "x')
    put(data / "cut.tar", (data / "a/audio_0.tar").read_bytes()[:1000])
    put(data / "rows.json", manifest(1))
    return (
        good
        + f"- {{type: nemo, manifest_filepath: {data}/half.json}}\n"
        + f"- {{type: nemo_tarred, manifest_filepath: {data}/rows.json, tarred_audio_filepaths: {data}/cut.tar}}\n"
        + f"- {{type: nemo, manifest_filepath: {data}/missing.json}}\n"
    )


def test_all_bad_sources_are_named_with_place_reason_and_next_step(open_site: OpenSite, data: Path) -> None:
    result = run_build(open_site(), submission(bad_blend(data), data), runner=InlineRunner())
    assert result["state"] == "failed"
    problems = {Path(item["file"]).name: item for item in result["problems"]}
    assert {name: item["code"] for name, item in problems.items()} == {
        "half.json": Code.SOURCE_REFUSED, "cut.tar": Code.TAR_TRUNCATED, "missing.json": Code.SOURCE_MISSING,
    }  # fmt: skip
    assert problems["half.json"]["byte"] == len(manifest(2))
    assert "allow=" in problems["half.json"]["next_step"]
    assert all(item["next_step"] and item["blend_line"] for item in result["problems"])
    assert "audio_filepath" not in json.dumps(result["problems"])  # the text of records stays in the records


def test_accept_publishes_what_is_good_without_reading_it_again(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend = bad_blend(data)
    wait_until_calm()
    failed = run_build(site, submission(blend, data), runner=InlineRunner())
    control.accept(site, failed["id"], who="ada", why="we train tonight")
    result = work_until_ended(site, failed["id"], runner=InlineRunner())
    assert result["state"] == "ready"
    assert len(sidecars(result["path"])) == 4
    receipt = json.loads(Path(result["path"], "receipt.json").read_bytes())
    assert {(item["by"], item["why"]) for item in receipt["excluded"]} == {("ada", "we train tonight")}
    assert len(receipt["excluded"]) == 3
    blend_text = Path(result["blend"]).read_text()
    assert "half.json" not in blend_text
    assert "audio__OP_0..1_CL_" in blend_text
    # The good sources, and the two that failed: what failed is looked at once more.
    assert result["opened"] - failed["opened"] <= 2


def test_the_same_sources_without_the_bad_entries_have_the_same_mirror(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    excluded = run_build(site, submission(bad_blend(data), data, on_bad="exclude"), runner=InlineRunner())
    clean = run_build(site, submission(corpus(data, shards=2), data), runner=InlineRunner())
    assert excluded["mirror"] == clean["mirror"]


def test_accept_needs_a_reason_and_a_failed_build(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    result = run_build(site, submission(corpus(data), data), runner=InlineRunner())
    for why, code in (("  ", Code.BAD_REQUEST), ("fine", Code.WRONG_STATE)):
        with pytest.raises(BlendexError) as raised:
            control.accept(site, result["id"], who="ada", why=why)
        assert raised.value.code is code


def test_retry_after_mending(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    path = put(data / "m.json", manifest(2) + b"[1]\n")
    blend = f"- {{type: nemo, manifest_filepath: {path}}}\n"
    failed = run_build(site, submission(blend, data), runner=InlineRunner())
    assert failed["problems"][0]["code"] == Code.SOURCE_REFUSED
    put(path, manifest(2))
    control.retry(site, failed["id"])
    assert work_until_ended(site, failed["id"], runner=InlineRunner())["state"] == "ready"


def test_allow_takes_a_finding_for_one_request_only(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    path = put(data / "m.json", manifest(2) + b"[1]\n")
    blend = f"- {{type: nemo, manifest_filepath: {path}}}\n"
    wait_until_calm()
    allowed = run_build(site, submission(blend, data, allow=("not_an_object",)), runner=InlineRunner())
    assert allowed["state"] == "ready"
    refused = run_build(site, submission(blend, data), runner=InlineRunner())
    assert refused["state"] == "failed"
    assert refused["opened"] == 0  # judged by what is known, not by another read


@pytest.mark.parametrize(
    ("blend", "code"),
    [
        ("- {type: nemoo, manifest_filepath: a.json}\n", Code.UNKNOWN_TYPE),
        ("- {type: txt, paths: a.txt}\n", Code.EMPTY_BUILD),
        ("[]\n", Code.BLEND_EMPTY),
        ("- {type: nemo, manifest_filepath: '${where}/a.json'}\n", Code.UNKNOWN_VARIABLE),
        ("- {type: nemo, manifest_filepath: 'm_{0..99999999}.json'}\n", Code.PATTERN_TOO_MANY),
    ],
)
def test_a_wrong_blend_fails_with_a_place_and_a_next_step(
    open_site: OpenSite, data: Path, blend: str, code: Code
) -> None:
    data.mkdir()
    result = run_build(open_site(), submission(blend, data), runner=InlineRunner())
    assert (result["state"], result["error"]["code"]) == ("failed", code)
    assert result["error"]["next_step"]
    assert result["error"]["file"]


def test_two_sources_on_one_sidecar_are_refused(open_site: OpenSite, data: Path) -> None:
    corpus(data, shards=1)
    tar = f"{data}/a/audio_0.tar"
    shar = data / "shar"
    put(shar / "recording.000000.tar", (data / "a/audio_0.tar").read_bytes())
    blend = (
        f"- {{type: nemo_tarred, manifest_filepath: {data}/a/manifest_0.json, tarred_audio_filepaths: {tar}}}\n"
        f"- {{type: lhotse_shar, shar_path: {{recording: {tar}}}}}\n"
    )
    result = run_build(open_site(), submission(blend, data), runner=InlineRunner())
    assert result["error"]["code"] == Code.INDEX_PATH_COLLISION
    assert len(result["problems"]) == 2


def test_a_source_that_never_rests_is_given_up_by_name(
    open_site: OpenSite, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(data / "m.json", manifest(2))
    blend = f"- {{type: nemo, manifest_filepath: {path}}}\n"
    from blendex.units import stage

    real = stage._changed

    def written_meanwhile(arguments: dict[str, object]) -> list[str]:
        with path.open("ab") as file:
            file.write(manifest(1))
        return real(arguments)

    monkeypatch.setattr(stage, "_changed", written_meanwhile)
    result = run_build(open_site(), submission(blend, data), runner=InlineRunner())
    assert (result["state"], result["error"]["code"]) == ("failed", Code.SOURCE_CHANGED)
    assert result["error"]["file"] == str(path)
    assert result["path"] is None
