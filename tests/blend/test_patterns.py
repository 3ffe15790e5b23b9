"""Brace patterns against braceexpand 0.1.7 and upstream's table."""

from __future__ import annotations

import time

import pytest
from braceexpand import UnbalancedBracesError, braceexpand
from hypothesis import given, settings
from hypothesis import strategies as st

from blendex.blend.patterns import count, expand, rewritten
from blendex.errors import BlendexError, Code

from .fakes import table

EXPANSIONS = table("expand.json")


def test_the_table_is_whole() -> None:
    assert len(EXPANSIONS) == 34


@pytest.mark.parametrize(("spec", "wanted"), EXPANSIONS, ids=[row[0] for row in EXPANSIONS])
def test_upstream_table(spec: str, wanted: dict[str, object]) -> None:
    if "error" in wanted:
        with pytest.raises(BlendexError) as caught:
            expand(spec, 100)
        assert caught.value.code is Code.PATTERN_UNBALANCED
        assert caught.value.next_step
        return
    assert expand(spec, 100) == wanted["ok"]
    assert count(spec) == len(wanted["ok"])  # type: ignore[arg-type]


_numbers = st.integers(-12, 12).map(str) | st.sampled_from(["0", "00", "07", "-0", "-01", "010", "٣"])
_ranges = st.builds(
    lambda a, b, step: "{" + f"{a}..{b}" + step + "}",
    _numbers,
    _numbers,
    st.sampled_from(["", "..2", "..-3", "..0", "..", "..x"]),
)
_letters = st.builds(
    lambda a, b, step: "{" + f"{a}..{b}" + step + "}",
    st.sampled_from("aczAMZ"),
    st.sampled_from("abzAMZ"),
    st.sampled_from(["", "..5", "..0", "..-7"]),
)
_plain = st.text(alphabet="ab,{}.\\_-0\n", max_size=6)


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, min_size=1, max_size=3).map(lambda parts: "{" + ",".join(parts) + "}")


_pieces = st.recursive(_ranges | _letters | _plain, _nested, max_leaves=5)
_patterns = st.lists(_pieces, max_size=3).map("".join)


@settings(max_examples=400, deadline=None)
@given(_patterns)
def test_equals_the_library(pattern: str) -> None:
    if pattern.count("{") != pattern.count("}"):
        with pytest.raises(BlendexError, match="unbalanced"):
            count(pattern)
        with pytest.raises(UnbalancedBracesError):
            list(braceexpand(pattern, escape=False))
        return
    amount = count(pattern)
    if amount > 20_000:
        return
    wanted = list(braceexpand(pattern, escape=False))
    assert amount == len(wanted)
    assert expand(pattern, 20_000) == wanted


def test_the_marks_of_nemo_become_braces() -> None:
    assert rewritten("a_OP_0..1_CL_(b)[c]<d>") == "a{0..1}{b}{c}{d}"


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ("/d/a_{0..999999999999}.tar", "1,000,000,000,000 paths"),
        ("{0..9}" * 12, "1,000,000,000,000 paths"),
        ("{0..9}" * 5000, "more than 10^30"),
        ("{1.." + "9" * 5000 + "}", "thousands of digits"),
        ("{" * 3000 + "}" * 3000, "nests braces"),
        ("x" * 400_000 + "{0..999}", "characters altogether"),
    ],
)
def test_absurd_patterns_are_refused_by_arithmetic(spec: str, shown: str) -> None:
    started = time.perf_counter()
    with pytest.raises(BlendexError, match=r".") as caught:
        expand(spec, 1_000_000)
    assert time.perf_counter() - started < 0.5
    assert caught.value.code is Code.PATTERN_TOO_MANY
    assert shown.replace("more than 10^30", "more than 10^30") in caught.value.message
    assert len(caught.value.message) < 1000


def test_the_limit_itself_is_allowed() -> None:
    assert len(expand("{0..9}", 10)) == 10
    with pytest.raises(BlendexError, match="limit is 9"):
        expand("{0..9}", 9)
