"""Documents: their links lead somewhere, and what they say of commands is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent.parent
PAGES = sorted([*HERE.glob("*.md"), *HERE.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(HERE)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_commands_and_options_of_the_readme_exist() -> None:
    text = (HERE / "README.md").read_text()
    commands = re.findall(r"\.venv/bin/blendex +([^\n#]+)", text)
    assert len(commands) >= 4
    for command in commands:
        words = command.split()
        names = [words[0], words[1]] if words[0] in ("builds", "mirrors", "names") else [words[0]]
        shown = subprocess.run(
            [sys.executable, "-c", "from blendex.cli import main; main()", *names, "--help"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        for option in re.findall(r"--[a-z-]+", command):
            assert option in shown, (command, option)
