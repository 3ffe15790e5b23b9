"""The memory budget: the smallest limit that holds here."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from blendex.runtime import budget


def test_the_host_is_the_last_resort() -> None:
    found = budget.read_budget()
    assert 0 < found.limit <= psutil.virtual_memory().total
    assert 0 <= found.left <= found.limit


@pytest.mark.parametrize(
    ("limit", "used", "inactive", "name"),
    [
        ("memory.max", "memory.current", "inactive_file", "v2"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "v1"),
    ],
)
def test_page_cache_is_not_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, used: str, inactive: str, name: str
) -> None:
    folder = tmp_path / ("memory" if name == "v1" else "")
    folder.mkdir(exist_ok=True)
    (folder / limit).write_text("1000000\n")
    (folder / used).write_text("700000\n")
    (folder / "memory.stat").write_text(f"active_file 5\n{inactive} 300000\n")
    real = Path

    def moved(path: str) -> Path:
        return real(str(path).replace("/sys/fs/cgroup", str(tmp_path)))

    monkeypatch.setattr(budget, "Path", moved)
    found = budget.read_budget()
    assert (found.limit, found.used, found.left) == (1_000_000, 400_000, 600_000)
    assert limit in found.source
