"""The launcher of the README, run as it stands there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.service.conftest import Service

README = Path(__file__).parent.parent.parent / "README.md"

# The jq engine as a command, for machines that have no jq: enough for -r and a filter.
JQ = f"""#!{sys.executable}
import sys, jq
assert sys.argv[1] == "-r"
print(jq.compile(sys.argv[2]).input_text(sys.stdin.read()).first())
"""


def test_the_launcher_of_the_readme(service: Service, sample: Path, ready: dict[str, Any], tmp_path: Path) -> None:
    match = re.search(r"<!-- launcher: [^\n]*-->\n```sh\n(.*?)```", README.read_text(), re.DOTALL)
    assert match is not None
    script = match.group(1)
    assert len(script.splitlines()) == 5
    tools = tmp_path / "bin"
    tools.mkdir()
    if shutil.which("jq") is None:
        (tools / "jq").write_text(JQ)
        (tools / "jq").chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", script],
        env={
            "PATH": f"{tools}:{os.environ['PATH']}", "NO_PROXY": "*",
            "URL": service.url, "BLEND": str(sample / "blend.yaml"), "DATA": str(sample),
        },
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ready["path"] + "\n"), done.stderr
