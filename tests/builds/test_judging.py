"""What judging makes of runs of rows: lines of a job, and who keeps a sidecar of its own."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from blendex.blend.world import World
from blendex.builds import packs
from blendex.builds.judging import Judged, roles_of
from blendex.builds.places import Contents, Places
from blendex.units.plan import runs_of

ROWS = st.lists(st.integers(0, 19), max_size=8)


def _judged(leaves: list[dict[str, Any]], kept: list[bool]) -> Judged:
    rows = [("jsonl", f"/{number:02}") for number in range(len(kept))]
    plan = {"datasets": [{"pointer": [0], "leaves": leaves}]}
    return Judged(rows, Places("", World(), ()), plan, Contents(len(rows)), kept=bytearray(kept))


@given(rows=st.lists(ROWS, max_size=4), kept=st.lists(st.booleans(), min_size=20, max_size=20))
def test_roles_name_lines_of_the_job(rows: list[list[int]], kept: list[bool]) -> None:
    leaves = [{"pointer": [0], "roles": {"tars": runs_of(row)} if row else {}} for row in rows]
    lines = [number for number, good in enumerate(kept) if good]  # line n of the job is this row
    found = [
        [lines[line] for start, length in leaf["tars"] for line in range(start, start + length)]
        for leaf in roles_of(_judged(leaves, kept))
    ]
    assert found == [row for row in rows if row and all(kept[number] for number in row)]


@given(packed=ROWS, loose=ROWS, gone=ROWS)
def test_only_what_no_unpacked_dataset_names_does_without_a_sidecar(
    packed: list[int], loose: list[int], gone: list[int]
) -> None:
    inside = packs.no_places(20)
    for number in packed:
        inside[number] = 1
    datasets = [
        {"pointer": [0], "leaves": [{"pointer": [0], "sources": runs_of(sorted(set(packed)))}]},
        {
            "pointer": [1],
            "leaves": [
                {"pointer": [1, 0], "sources": runs_of(sorted(set(loose)))},
                {"pointer": [1, 1], "sources": runs_of(sorted(set(gone)))},
            ],
        },
    ]
    again = packs.keep_loose(datasets, [[0]], {(1, 1)}, inside)
    assert {number for number in range(20) if inside[number]} == set(packed) - set(loose)
    assert again == sorted(set(packed) & set(loose))


def test_a_key_tells_packed_sources_with_sidecars_from_those_without() -> None:
    assert packs.packed_only(["b", "a"], []) == ["b", "a"]
    one = packs.packed_only(["a"], [("jsonl", "/x")])
    two = packs.packed_only(["a"], [("jsonl", "/y")])
    assert one[0] == two[0] == "a"
    assert one != two
