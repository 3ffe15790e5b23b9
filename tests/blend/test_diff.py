"""The difference of two texts: what ``diff`` would say, whatever their size."""

from __future__ import annotations

import difflib
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from blendex.blend.diff import unified

LINES = st.lists(st.sampled_from(["a", "b", "c", "  d: 1", ""]), max_size=30)


def patched(before: str, diff: str) -> str:
    """``before`` with a unified diff applied to it."""
    old, out, at = before.splitlines(keepends=True), [], 0
    lines = diff.splitlines(keepends=True)[2:]
    for number, line in enumerate(lines):
        if line.startswith("@@"):
            start, _, length = line.split()[1][1:].partition(",")
            begin = int(start) - (length != "0")
            out += old[at:begin]
            at = begin
            continue
        text = line[1:]
        if number + 1 < len(lines) and lines[number + 1].startswith("\\"):
            text = text.removesuffix("\n")
        if line[0] == " ":
            assert old[at] == text
        if line[0] in " +":
            out.append(text)
        if line[0] == "-":
            assert old[at] == text
        at += line[0] in " -"
    return "".join(out + old[at:])


@settings(max_examples=300, deadline=None)
@given(LINES, LINES, st.booleans())
def test_the_difference_leads_from_one_to_the_other(one: list[str], two: list[str], ended: bool) -> None:
    before, after = ("\n".join(lines) + ("\n" if ended and lines else "") for lines in (one, two))
    diff = unified(before, after, "/cfg/x.yaml")
    assert (diff == "") == (before == after)
    if diff:
        assert diff.startswith("--- /cfg/x.yaml\n+++ ready/x.yaml\n@@")
        assert patched(before, diff) == after


def test_small_differences_are_those_of_difflib() -> None:
    before = "".join(f"{number}\n" for number in range(40))
    after = before.replace("7\n", "seven\n", 1).replace("30\n", "", 1)
    ours = unified(before, after, "a").splitlines()[2:]
    theirs = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm=""))[2:]
    assert ours == theirs


def test_large_blends_are_compared_in_seconds() -> None:
    entries = [f"- type: nemo\n  manifest_filepath: ${{d}}/{number}.json\n  weight: 1\n" for number in range(10_000)]
    ready = [
        f'- type: nemo\n  indexed: true\n  indexes_root: /m\n  manifest_filepath: "/d/{number}.json"\n  weight: 1\n'
        for number in range(10_000)
    ]
    before, after = "# head\n" + "".join(entries), "# head\n" + "".join(ready)
    began = time.process_time()
    diff = unified(before, after, "a")
    assert time.process_time() - began < 5
    assert patched(before, diff) == after
