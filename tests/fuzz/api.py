"""``python -m tests.fuzz.api``: thousands of generated requests to every address of a real service, with all checks.

Then what an attacker would send, and the time until each is refused with its reason: printed beside 100 ms, and not
asserted, since it means nothing on a busy machine.
"""

from __future__ import annotations

import argparse
import io
import random
import statistics
import tarfile
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from schemathesis.checks import CHECKS, load_all_checks

from blendex.sample import make
from tests.service.conftest import Service, _site, working
from tests.support import corpus

# A text that fits the schema of a submission is hardly ever a blend, an id hardly ever that of a build.
NOT_FOR_US = {"positive_data_acceptance"}
LONGEST_MS = 100.0


def run(service: Service, examples: int, number: int, real: dict[str, str]) -> Counter[str]:
    """So many requests, spread over all operations; answers by status.

    Every other one that names a build, mirror or name takes a ``real`` one, which no generator would guess.

    Raises:
        AssertionError, schemathesis.errors: an answer that the description does not foresee, or any 5xx but 503.
    """
    load_all_checks()
    checks = [CHECKS.get_one(name) for name in CHECKS.get_all_names() if name not in NOT_FOR_US]
    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    seen: Counter[str] = Counter()
    each = settings(
        max_examples=max(1, examples // len(operations)), deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip

    chance = random.Random(number)

    def check(case: schemathesis.Case) -> None:
        wanted = checks
        known = {name: value for name, value in real.items() if name in (case.path_parameters or {})}
        if known and chance.random() < 0.5:
            case.path_parameters.update(known)
            # What was wrong with the request may be put right by that.
            wanted = [check for check in checks if check.__name__ != "negative_data_rejection"]
        answer = case.call(timeout=60)
        seen[str(answer.status_code)] += 1
        assert answer.status_code < 500 or answer.status_code == 503, answer.text
        case.validate_response(answer, checks=wanted)

    for operation in operations:
        before = sum(seen.values())
        seed(number)(each(given(operation.as_strategy())(check)))()
        print(f"{operation.method.upper():6} {operation.path:32} {sum(seen.values()) - before:5}", flush=True)
    return seen


def _tar(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, link
        archive.addfile(member)
    return stream.getvalue()


def attacks(folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """What is posted, by name: the code that it must be refused with, and the request."""
    outside = folder.parent / "outside.yaml"
    outside.write_text("- {type: nemo, manifest_filepath: /a.jsonl}\n")
    link = folder / "leads-out.yaml"
    link.symlink_to(outside)
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
    )
    tar = {"headers": {"Content-Type": "application/x-tar"}}
    json = {"headers": {"Content-Type": "application/json"}}

    def entry(path: str) -> dict[str, Any]:
        # Planned in a child, for the answer to this very request.
        return {"content": f"- {{type: nemo, manifest_filepath: '{path}'}}\n", "params": {"dry_run": "1"}}

    def path(value: str) -> dict[str, Any]:
        return json | {"content": f'{{"path": "{value}"}}'}

    return {
        "alias bomb": ("blend_too_many_nodes", {"content": bomb}),
        "deep nesting": ("blend_too_deep", {"content": "[" * 5_000}),
        "python tag": ("blend_tag", {"content": "!!python/object/apply:os.system [id]"}),
        "range of 10^9": ("pattern_too_many", entry("/a/{0..999999999}.json")),
        "ranges in ranges": ("pattern_too_many", entry("/a/" + "{0..999}" * 9 + ".json")),
        "environment": ("unknown_variable", entry("${oc.env:BLENDEX_DATABASE_URL}")),
        "resolver": ("unsupported_interpolation", entry("${eval:1+1}")),
        "traversal": ("path_outside_roots", path(f"{folder}/../outside.yaml")),
        "link": ("path_outside_roots", path(str(link))),
        "password file": ("path_outside_roots", path("/etc/passwd")),
        "address of a cloud": ("store_unknown", entry("http://169.254.169.254/latest/meta-data")),
        "mapped loopback": ("store_unknown", entry("http://[::ffff:127.0.0.1]/a.json")),
        "bucket of nobody": ("store_unknown", entry("s3://somebody/a.json")),
        "pipe": ("path_unsupported", entry("pipe:id")),
        "tar with a link": ("bad_request", tar | {"content": _tar("a.yaml", tarfile.SYMTYPE, "/etc/passwd")}),
        "tar with ..": ("bad_request", tar | {"content": _tar("../a.yaml")}),
        "tar with a device": ("bad_request", tar | {"content": _tar("a.yaml", tarfile.CHRTYPE)}),
    }


def attack(service: Service, name: str, code: str, request: dict[str, Any], times: int = 5) -> float:
    """Post it; milliseconds until it was refused with ``code``, the median of a few."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        answer = service.http.post("/v1/builds", **request)
        took.append((time.perf_counter() - began) * 1000)
        value = answer.json()
        assert answer.status_code == 200 or 400 <= answer.status_code < 500, (name, answer.status_code, answer.text)
        problems = value["problems"] if answer.status_code == 200 else [value]
        reasons = [item.get("detail") or item["message"] for item in problems if item["code"] == code]
        assert reasons, (name, answer.text)
    return statistics.median(took)


def main() -> None:
    """Run ``--examples`` requests, then the attacks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    number = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {number}")
    with tempfile.TemporaryDirectory(prefix="blendex-api-") as top:
        folder = Path(top) / "allowed"
        sample = make(folder / "sample").parent
        corpus.wait_until_calm()
        blend = (sample / "blend.yaml").read_text().replace("${data_blend_dir}", str(sample))
        with working(_site(Path(top) / "root", folder), folder) as service:
            build = service.built(blend, name="sample")
            assert build["state"] == "ready"
            real = {"build": build["id"], "key": build["mirror"], "name": "sample"}
            began = time.monotonic()
            seen = run(service, arguments.examples, number, real)
            print(f"{sum(seen.values())} requests in {time.monotonic() - began:.0f} s: {dict(sorted(seen.items()))}")
            slow = []
            for name, (code, request) in attacks(folder).items():
                took = attack(service, name, code, request)
                slow += [name] if took > LONGEST_MS else []
                print(f"{name:20} {code:26} {took:6.1f} ms")
    print(f"later than {LONGEST_MS:.0f} ms: {', '.join(slow) or 'none'}")


if __name__ == "__main__":
    main()
