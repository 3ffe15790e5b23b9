"""Posting blends: every form of a body, every option, and what is refused."""

from __future__ import annotations

import gzip
import io
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from blendex.blend.world import World
from blendex.errors import BlendexError, Code
from service.bodies import read_tar
from tests.service.conftest import Service
from tests.support import corpus

MIB = 2**20


def packed(files: dict[str, str | bytes], *, kind: bytes = tarfile.REGTYPE) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, text in files.items():
            data = text.encode() if isinstance(text, str) else text
            member = tarfile.TarInfo(name)
            member.size = len(data) if kind == tarfile.REGTYPE else 0
            member.type = kind
            member.linkname = "/etc/passwd" if kind != tarfile.REGTYPE else ""
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    value: dict[str, Any] = answer.json()
    assert (value["status"], value["code"]) == (status, code)
    assert value["type"] == f"urn:blendex:error:{code}"
    assert value["detail"]
    assert value["next_step"]
    return value


def test_answer_is_flat_and_linked(service: Service, ready: dict[str, Any]) -> None:
    own = f"/v1/builds/{ready['id']}"
    assert ready["links"] == {
        "self": own,
        "path": f"{own}/path",
        "events": f"{own}/events",
        "problems": f"{own}/problems",
        "findings": f"{own}/findings",
        "log": f"{own}/log",
        "blend": f"{own}/blend",
        "blend_diff": f"{own}/blend.diff",
        "mirror": f"/v1/mirrors/{ready['mirror']}",
    }
    for address in ("self", "path", "events", "problems", "blend", "blend_diff", "mirror"):
        assert service.http.get(ready["links"][address]).status_code == 200
    assert ready["names"] == ["sample"]
    text = service.http.get(f"{own}/blend")
    assert text.headers["content-type"].startswith("application/yaml")
    assert f"{ready['path']}/idx" in text.text


@pytest.mark.parametrize(
    "kind", ["application/yaml", "text/yaml", "application/x-yaml; charset=utf-8", "text/plain",
             "application/x-www-form-urlencoded", ""]
)  # fmt: skip
def test_yaml_by_any_name(service: Service, blend: str, ready: dict[str, Any], kind: str) -> None:
    headers = {"Content-Type": kind} if kind else {}
    answer = service.http.post("/v1/builds", content=blend.encode(), headers=headers, params={"wait": 60})
    assert answer.status_code == 200
    assert answer.headers["location"] == f"/v1/builds/{answer.json()['id']}"
    assert answer.json()["path"] == ready["path"]
    assert answer.json()["opened"] == 0


def test_variables_and_base(service: Service, sample: Path, ready: dict[str, Any]) -> None:
    text = (sample / "blend.yaml").read_text()
    assert service.built(text, var=f"data_blend_dir={sample}")["path"] == ready["path"]
    env = service.built(text.replace("${data_blend_dir}", "${oc.env:HERE}"), env=[f"HERE={sample}", "OTHER=a=b"])
    assert env["path"] == ready["path"]
    failed = service.built(text.replace("${data_blend_dir}/", ""))
    assert (failed["state"], failed["error"]["code"]) == ("failed", "relative_without_base")
    relative = service.built(text.replace("${data_blend_dir}/", ""), base=str(sample))
    assert relative["state"] == "ready", relative


def test_views_map_paths_in_their_order(service: Service, sample: Path, blend: str) -> None:
    seen = blend.replace(str(sample), "/job/lang=en")
    query = [("map", f"/job/lang=en={sample}"), ("view", "/job/lang=en=/nowhere"), ("wait", "60")]
    build = service.http.post("/v1/builds", content=seen, params=query).json()
    assert build["state"] == "ready", build
    lines = service.http.get(f"{build['links']['mirror']}/receipt?sources=1").text
    assert '"path":"/job/lang=en/manifest.jsonl"' in lines
    assert f'"address":"{sample}/manifest.jsonl"' in lines


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("vra=a=b", "var"),
        ("dryrun=1", "dry_run"),
        ("zzz=1", "Known are"),
        ("base=data", "absolute"),
        ("base=/a&base=/b", "more than once"),
        ("var=a", "NAME=VALUE"),
        ("var=a=1&var=a=2", "twice"),
        ("view=/a", "absolute"),
        ("map=a=/b", "absolute"),
        ("allow=everything", "finding"),
        ("compat=old", "compat"),
        ("on_bad=skip", "on_bad"),
        ("name=a/b", "name"),
        ("wait=61", "wait"),
        ("wait=nan", "wait"),
        ("main=a.yaml", "tar"),
        ("dry_run=perhaps", "dry_run"),
    ],
)
def test_bad_queries(idle: Service, blend: str, query: str, says: str) -> None:
    value = refused(idle.http.post(f"/v1/builds?{query}", content=blend), 400, "bad_request")
    assert says in value["detail"] + value["next_step"]
    line = idle.http.post(f"/v1/builds?{query}", content=blend, headers={"Accept": "text/plain"})
    assert line.status_code == 400
    assert line.text.count("\n") == 1


def test_bad_bodies(idle: Service, blend: str) -> None:
    def post(body: bytes | str, kind: str, **query: str) -> httpx.Response:
        return idle.http.post("/v1/builds", content=body, headers={"Content-Type": kind}, params=query)

    refused(post("a: [", "application/yaml"), 422, "blend_syntax")
    refused(post(b"\xff\xfe", "application/yaml"), 422, "blend_syntax")
    refused(post("", "application/yaml"), 422, "blend_empty")
    refused(post("x" * 300_000, "application/yaml"), 413, "blend_too_large")
    refused(post("{", "application/json"), 400, "bad_request")
    refused(post("[]", "application/json"), 400, "bad_request")
    refused(post('{"path": 1}', "application/json"), 400, "bad_request")
    refused(post('{"path": "blend.yaml"}', "application/json"), 400, "bad_request")
    assert "path" in refused(post('{"pth": "/a"}', "application/json"), 400, "bad_request")["next_step"]
    form = post(blend, "multipart/form-data; boundary=x")
    assert "curl -F" in refused(form, 400, "bad_request")["next_step"]
    assert "x-tar" in refused(post(packed({"a.yaml": blend}), "text/plain"), 400, "bad_request")["next_step"]
    glued = post(blend.replace("\n", ""), "application/x-www-form-urlencoded")
    assert "--data-binary" in refused(glued, 422, "blend_empty")["next_step"]


def test_too_large_while_streaming(idle: Service) -> None:
    def pieces() -> Any:
        for _ in range(400):
            yield b"# nothing\n" * 100

    refused(idle.http.post("/v1/builds", content=pieces()), 413, "blend_too_large")
    refused(idle.http.post("/v1/builds", content=b"# nothing\n" * 400_000), 413, "blend_too_large")
    refused(idle.http.put("/v1/names/x", content=b" " * 70_000), 413, "blend_too_large")
    assert idle.http.get("/healthz").status_code == 200


def test_path_inside_an_allowed_root(service: Service, sample: Path, ready: dict[str, Any]) -> None:
    query = {"wait": "60", "var": f"data_blend_dir={sample}"}
    answer = service.http.post("/v1/builds", json={"path": str(sample / "blend.yaml")}, params=query)
    assert answer.json()["path"] == ready["path"], answer.text
    seen = service.http.post("/v1/builds", json={"path": "/job/blend.yaml"}, params=query | {"view": f"/job={sample}"})
    assert seen.json()["path"] == ready["path"]
    refused(service.http.post("/v1/builds", json={"path": str(sample / "none.yaml")}), 422, "source_missing")


def test_outside_the_roots_nothing_is_told(service: Service, sample: Path, tmp_path: Path) -> None:
    there = corpus.put(tmp_path / "secret.yaml", b"- type: nemo\n  manifest_filepath: /x.json\n")
    link = sample.parent / "link.yaml"
    link.symlink_to(there)
    dangling = sample.parent / "dangling.yaml"
    dangling.symlink_to(tmp_path / "absent.yaml")
    folder = sample.parent / "folder"
    folder.symlink_to(tmp_path)
    pairs = [
        (str(there), str(tmp_path / "absent.yaml")),
        (f"{sample}/../..{there}", f"{sample}/../..{tmp_path}/absent.yaml"),
        (str(link), str(dangling)),
        (f"{folder}/secret.yaml", f"{folder}/absent.yaml"),
        ("/etc/passwd", "/etc/absent"),
    ]
    for present, absent in pairs:
        told = [refused(service.http.post("/v1/builds", json={"path": path}), 403, "path_outside_roots")
                for path in (present, absent)]  # fmt: skip
        assert told[0]["detail"] == told[1]["detail"]
        blends = [f"- type: nemo\n  manifest_filepath: {path}\n" for path in (present, absent)]
        failed = [service.built(text.replace(".yaml", ".yaml?a.json").replace("?a.json", "")) for text in blends]
        assert [build["state"] for build in failed] == ["failed", "failed"]
        assert failed[0]["error"]["code"] == failed[1]["error"]["code"]
        assert failed[0]["error"]["message"].replace(present, "") == failed[1]["error"]["message"].replace(absent, "")
    for path in (link, dangling, folder):
        path.unlink()


def test_tar_with_nested_blends(service: Service, sample: Path, blend: str, ready: dict[str, Any]) -> None:
    files = {
        "./granary/blend.yaml": "- type: group\n  input_cfg: ../parts/all.yaml\n",
        "parts/all.yaml": "- type: group\n  input_cfg: inner/leaf.yml\n",
        "parts/inner/leaf.yml": blend,
        "README.md": "not a blend",
    }
    query = {"main": "granary/blend.yaml", "wait": "60"}
    for body in (packed(files), gzip.compress(packed(files))):
        answer = service.http.post(
            "/v1/builds", content=body, headers={"Content-Type": "application/x-tar"}, params=query
        )
        assert answer.status_code == 200, answer.text
        assert answer.json()["path"] == ready["path"], answer.json()["problems"]
    based = service.http.post(
        "/v1/builds", content=packed(files), headers={"Content-Type": "application/x-tar"},
        params=query | {"base": f"{sample}/granary"},
    )  # fmt: skip
    assert based.json()["path"] == ready["path"], based.json()["problems"]
    text = service.http.get(f"{based.json()['links']['self']}/blend").text
    assert "all.yaml" not in text.replace("# ", "")


def test_tars_that_are_refused(idle: Service, blend: str) -> None:
    def post(body: bytes, **query: str) -> httpx.Response:
        return idle.http.post("/v1/builds", content=body, headers={"Content-Type": "application/x-tar"}, params=query)

    two = {"a.yaml": blend, "b.yaml": blend}
    assert "main=" in refused(post(packed(two)), 400, "bad_request")["next_step"]
    assert "a.yaml" in refused(post(packed(two), main="aa.yaml"), 400, "bad_request")["next_step"]
    for name in ("/etc/a.yaml", "../a.yaml", "x/../../a.yaml", "a\\b.yaml", "a\nb.yaml"):
        refused(post(packed({name: blend})), 400, "bad_request")
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
        refused(post(packed({"a.yaml": blend}, kind=kind)), 400, "bad_request")
    refused(post(packed({"a.txt": blend})), 400, "bad_request")
    refused(post(packed({"a.yaml": blend})[:700]), 400, "bad_request")
    refused(post(b"no tar at all" * 100), 400, "bad_request")
    refused(post(gzip.compress(packed({"a.yaml": blend}))[:-20]), 400, "bad_request")
    refused(post(gzip.compress(packed({"a.bin": bytes(MIB)}))), 413, "blend_too_large")


def test_tar_limits() -> None:
    twice = packed({"a.yaml": "x"})[:1024] + packed({"./a.yaml": "y"})
    with pytest.raises(BlendexError, match="twice"):
        read_tar(twice, MIB, MIB)
    with pytest.raises(BlendexError) as large:
        read_tar(packed({"a.yaml": "x" * 2000}), 1000, MIB)
    assert large.value.code is Code.BLEND_TOO_LARGE
    assert read_tar(packed({"d/./a.yaml": "x"}), MIB, MIB) == {"d/a.yaml": b"x"}
    assert World().view == ()


def test_fifty_identical_posts_are_one_build(idle: Service, blend: str) -> None:
    with ThreadPoolExecutor(50) as pool:
        built = list(pool.map(lambda _: idle.post(blend + "# fifty\n"), range(50)))
    assert len({build["id"] for build in built}) == 1


def test_near_identical_posts_read_every_source_once(service: Service, shards: tuple[str, Path]) -> None:
    corpus.wait_until_calm()
    with ThreadPoolExecutor(20) as pool:
        blends = [shards[0].replace("0.5", f"0.{number}") for number in range(1, 21)]
        built = list(pool.map(service.built, blends))
    assert {build["state"] for build in built} == {"ready"}
    assert len({build["path"] for build in built}) == 1
    assert sum(build["opened"] for build in built) == 6


def test_dry_run_makes_no_build(service: Service, shards: tuple[str, Path], ready: dict[str, Any], blend: str) -> None:
    before = service.http.get("/v1/builds?limit=1").json()
    answer = service.http.post("/v1/builds?dry_run=1", content=shards[0])
    assert answer.status_code == 200
    assert (answer.json()["sources"], answer.json()["reused"], answer.json()["path"]) == (6, 0, None)
    assert len(answer.json()["missing"]) == 6
    known = service.http.post("/v1/builds?dry_run=1", content=blend).json()
    assert (known["reused"], known["path"]) == (known["sources"], ready["path"])
    assert service.http.get("/v1/builds?limit=1").json() == before
    refused(service.http.post("/v1/builds?dry_run=1", content="a: ["), 422, "blend_syntax")


def test_previews_queue(service: Service, blend: str, ready: dict[str, Any]) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: service.http.post("/v1/mirrors/resolve", content=blend), range(4)))
    assert [answer.json()["path"] for answer in answers] == [ready["path"]] * 4
