"""What batch jobs and launchers do: POSIX sh, curl, and nothing else of ours."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from tests.service.conftest import Service

# The launcher of the README, with python where there is no jq.
LAUNCHER = r"""
set -eu
answer=$(curl -fsS --noproxy '*' --data-binary "@$BLEND" "$URL/v1/builds?wait=60&var=data_blend_dir=$DATA")
state=$(printf '%s' "$answer" | python3 -c 'import json, sys; print(json.load(sys.stdin)["state"])')
[ "$state" = ready ] || { echo "not ready: $state" >&2; exit 1; }
mirror=$(printf '%s' "$answer" | python3 -c 'import json, sys; print(json.load(sys.stdin)["path"])')
printf '%s\n' "$mirror"
"""


def run(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", **variables}
    return subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_launcher(service: Service, sample: Path, ready: dict[str, Any]) -> None:
    done = run(LAUNCHER, URL=service.url, BLEND=str(sample / "blend.yaml"), DATA=str(sample))
    assert (done.returncode, done.stdout) == (0, ready["path"] + "\n"), done.stderr


def test_text_launcher_in_one_line(service: Service, blend: str, tmp_path: Path, ready: dict[str, Any]) -> None:
    (tmp_path / "blend.yaml").write_text(blend)
    done = run(
        'curl -fsS --noproxy "*" --retry 9 -H "Accept: text/plain" --data-binary @"$BLEND" "$URL/v1/builds"',
        URL=service.url, BLEND=str(tmp_path / "blend.yaml"),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ready["path"] + "\n"), done.stderr


def test_curl_retries_while_building(service: Service, shards: tuple[str, Path]) -> None:
    build = service.post(shards[0])
    done = run('curl -fsS --noproxy "*" --retry 9 "$URL/v1/builds/$ID/path"', URL=service.url, ID=build["id"])
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.rstrip("\n"), "READY").is_file()


def test_curl_takes_a_no_for_a_no(idle: Service, blend: str) -> None:
    build = idle.post(blend + "# never\n")
    ask = 'curl -fsS --noproxy "*" --retry 3 --retry-max-time 1 "$URL/v1/builds/$ID/path?wait=1"'
    assert run(ask, URL=idle.url, ID=build["id"]).returncode == 22  # still building when patience ends
    idle.http.post(f"/v1/builds/{build['id']}/cancel")
    began = time.monotonic()
    assert run(ask, URL=idle.url, ID=build["id"]).returncode == 22
    assert run(ask, URL=idle.url, ID="0" * 26).returncode == 22
    assert time.monotonic() - began < 1.5  # neither 409 nor 404 is tried again


def test_etag_keeps_the_file(service: Service, ready: dict[str, Any], tmp_path: Path) -> None:
    script = (
        'curl -fsS --noproxy "*" --etag-save "$T/etag" --etag-compare "$T/etag" -o "$T/path" '
        '-w "%{http_code}" "$URL/v1/names/sample/path"'
    )
    assert run(script, URL=service.url, T=str(tmp_path)).stdout == "200"
    assert run(script, URL=service.url, T=str(tmp_path)).stdout == "304"
    assert (tmp_path / "path").read_text() == ready["path"] + "\n"


def test_chunked_upload_by_curl(service: Service, blend: str, tmp_path: Path, ready: dict[str, Any]) -> None:
    (tmp_path / "blend.yaml").write_text(blend)
    script = (
        'tar -C "$T" -cf - . | curl -fsS --noproxy "*" -T - -X POST -H "Content-Type: application/x-tar" '
        '"$URL/v1/builds?wait=60&main=blend.yaml"'
    )
    done = run(script, URL=service.url, T=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert ready["path"] in done.stdout


def test_a_body_that_is_too_large_is_told_to_curl(idle: Service, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"# nothing\n" * 400_000)
    for send in ('--data-binary @"$T"', '-X POST -T - < "$T"', '-H Expect: --data-binary @"$T"'):
        done = run(
            f'curl -sS --noproxy "*" -H "Accept: text/plain" -w "%{{http_code}}" {send} "$URL/v1/builds"',
            URL=idle.url, T=str(tmp_path / "large"),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("blend_too_large: ")
        assert done.stdout.endswith("413")


def test_many_nodes_at_once(service: Service, shards: tuple[str, Path]) -> None:
    build = service.post(shards[0])
    answers: list[str] = []

    def node() -> None:
        answers.append(service.http.get(f"/v1/builds/{build['id']}/path?wait=30").text)

    nodes = [threading.Thread(target=node) for _ in range(100)]
    for thread in nodes:
        thread.start()
    for thread in nodes:
        thread.join()
    assert len(set(answers)) == 1
    assert Path(answers[0].strip(), "READY").is_file()
