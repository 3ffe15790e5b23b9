"""``blendex hold``, ``holds``, ``release``, ``collect``."""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from blendex.builds.run import run_build
from blendex.cli import main
from tests.support import corpus
from tests.support.aging import age
from tests.support.inline import InlineRunner

Say = Callable[..., str]


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Say:
    """What a command says, on both streams; ``code`` is the status that it must end with."""

    def call(*arguments: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["blendex", *arguments, "--root", str(tmp_path / "root")])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert (ended.value.code or 0) == code, said.out + said.err
        return said.out + said.err

    return call


def test_a_pin_is_taken_shown_and_released_and_collecting_asks_first(say: Say, tmp_path: Path) -> None:
    site = corpus.site(tmp_path / "root")
    data = tmp_path / "data"
    built = run_build(site, corpus.submission(corpus.corpus(data, 1), data), runner=InlineRunner())
    key, path = built["mirror"], Path(built["path"])
    assert "nobody holds it" in say("holds", key)
    me = getpass.getuser()
    assert f"{me} holds {key}" in say("hold", str(path), "--reason", "the paper")
    assert json.loads(say("holds", key, "--json"))["holds"][0]["reason"] == "the paper"
    age(site)
    assert "0 mirrors would go" in say("collect")
    assert "0 mirrors condemned" in say("collect", "--yes")
    assert "nobody holds it" in say("release", key)
    assert "there is no hold" in say("release", key, code=1)
    age(site)
    planned = say("collect", "--dry-run")
    assert "1 mirrors would be condemned" in planned
    assert key in planned
    assert "nothing was done" in planned
    assert "1 mirrors condemned, 0 collected" in say("collect", "--yes")
    assert "it may be collected from" in say("holds", key)
    age(site)
    assert f"1 mirrors would go (up to 0.0 MiB)\n  {key}" in say("collect")
    assert path.exists()
    assert "1 collected" in say("collect", "--yes")
    assert not path.exists()
    assert "was collected" in say("hold", key, "--reason", "too late", code=1)
    assert "no key of a mirror" in say("holds", "granary", code=1)
    assert "exclude each other" in say("collect", "--yes", "--dry-run", code=1)
    site.work.engine.dispose()

