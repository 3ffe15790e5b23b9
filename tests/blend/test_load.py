"""YAML: what OmegaConf reads is read alike, what is hostile is refused at once."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from blendex.blend.load import Limits, MapNode, SeqNode, parse
from blendex.blend.scalars import NotAScalarError, plain
from blendex.errors import BlendexError, Code

from .fakes import table

SPELLINGS = [
    "1e-4", "1E4", "1e+4", "1.5e3", "1_0.5", "1_000", "1__0", "_1", "0777", "0o17", "08", "0x1F", "0b101",
    "-0x1f",
    "1:30", "1:30.5", "190:20:30", "-1:30", "60:60", "yes", "No", "ON", "off", "y", "n", "true", "TRUE",
    "tRue",
    "null", "~", "Null", "nULL", "", ".inf", "-.INF", "+.inf", ".nan", ".NaN", "-.nan", "inf", "nan",
    "6e1234",
    "2001-01-01", "2001-12-14t21:59:43.10-05:00", ".5", ".", "..", "5.", "+5", "-5", "--5", "1.2.3", "1e",
    "e1",
    "0", "-0", "+0", "00", "0_0", "0_7", "1,000", "1.e5", ".e5", "._5", "0.", "0_.5", "+.5", "-.5", "1e5_0",
    "12e03", "4_2e1", "4__2e1", "0e0", "00e1", "/d/a.json", "m__OP_0..3_CL_.json", "abc def", "1.10",
]  # fmt: skip
_ODD = st.text(alphabet="0123456789_.:eExXbo+-yYnNaAifFlLuUtTrRsS~", max_size=8)


def _oracle(text: str) -> Any:
    return OmegaConf.to_container(OmegaConf.create(f"k: [{text}]"))["k"][0]  # type: ignore[index,call-overload]


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return type(left) is type(right) and left == right


@settings(max_examples=300, deadline=None)
@given(_ODD)
@example("0b_")
@example("0x_")
@example("1e5")
def test_scalars_mean_what_omegaconf_makes_of_them(text: str) -> None:
    _compare(text)


@pytest.mark.parametrize("text", SPELLINGS)
def test_known_spellings(text: str) -> None:
    _compare(text)


def _compare(text: str) -> None:
    document = f"k: [{text}]".encode()
    try:
        ours = parse(document, "f")["k"]  # type: ignore[index,call-overload]
    except BlendexError:
        with pytest.raises((yaml.YAMLError, ValueError, IndexError)):
            _oracle(text)
        return
    if ours:
        assert _same(ours[0], _oracle(text)), (ours[0], _oracle(text))


def test_a_scalar_that_has_no_value() -> None:
    with pytest.raises(NotAScalarError):
        plain("=")
    with pytest.raises(BlendexError, match="special meaning"):
        parse(b"a: =", "f")


def test_quotes_keep_text() -> None:
    assert parse(b"[\"1\", '1e-4', \"no\", 'null']", "f") == ["1", "1e-4", "no", "null"]


_keys = st.sampled_from(["a", "b", "type", "no", "1", "1.5", "x y"])
_trees = st.recursive(
    st.sampled_from(["1", "no", "1e-4", "text", "'q'", "null", "2001-01-01"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]")
        | st.dictionaries(_keys, inner, max_size=3).map(
            lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs.items()) + "}"
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(_trees)
def test_trees_mean_what_omegaconf_makes_of_them(text: str) -> None:
    document = f"top: {text}"
    assert parse(document.encode(), "f") == OmegaConf.to_container(OmegaConf.create(document))


@pytest.mark.parametrize(
    "document",
    [
        "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n",
        "a: &a {x: 1, y: 2}\nb: {y: 3, <<: *a}\n",
        "a: &a {x: 1}\nb: &b {x: 2, z: 3}\nc: {<<: [*a, *b]}\n",
        "a: &a {x: 1}\nb: &b {<<: *a, y: 2}\nc: {<<: *b, x: 9}\n",
        "a: {<<: {x: 1}, y: 2}\n",
        "a: &a [1, 2]\nb: [*a, *a]\n",
        "a: &a x\nb: {*a : 1}\n",
        "a: {'<<': 1}\n",
        "a: {=: 1}\n",
    ],
)
def test_aliases_and_merges(document: str) -> None:
    wanted = OmegaConf.to_container(OmegaConf.create(document))
    tree = parse(document.encode(), "f")
    assert tree == wanted
    assert [list(v) for v in tree.values() if isinstance(v, dict)] == [  # type: ignore[union-attr]
        list(v)
        for v in wanted.values()
        if isinstance(v, dict)  # type: ignore[union-attr]
    ]


def test_lines() -> None:
    tree = parse(b"# c\na: 1\nb:\n  - x\n  -\n    c: 2\n", "f")
    assert isinstance(tree, MapNode)
    assert (tree.line, tree.lines) == (2, {"a": 2, "b": 3})
    items = tree["b"]
    assert isinstance(items, SeqNode)
    assert (items.line, items.lines) == (4, [4, 6])
    assert items[1].lines == {"c": 6}


def test_sizes_count_aliases_in_full() -> None:
    tree = parse(b"a: &a [1, 2]\nb: [*a, *a]\n", "f")
    assert tree.size == 1 + 1 + 3 + 1 + 1 + 6  # type: ignore[union-attr]


def _bomb(levels: int, width: int) -> bytes:
    rows = ["a0: &a0 [x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(rows).encode()


HOSTILE = [
    ("alias bomb", _bomb(20, 10), Code.BLEND_TOO_MANY_NODES),
    ("merge bomb", table("cases.json")["merge_key_bomb.yaml"].encode(), Code.BLEND_TOO_MANY_NODES),
    ("deep flow list", b"[" * 100_000, Code.BLEND_TOO_DEEP),
    ("deep flow map", b"{a: " * 100_000, Code.BLEND_TOO_DEEP),
    ("deep block", b"- " * 100_000, Code.BLEND_TOO_DEEP),
    ("deep block map", b"\n".join(b" " * n + b"a:" for n in range(3000)), Code.BLEND_TOO_DEEP),
    ("too large", b"#" * (16 * 1024 * 1024 + 1), Code.BLEND_TOO_LARGE),
    ("python object", b"!!python/object/apply:os.system ['x']", Code.BLEND_TAG),
    ("python name", b"a: !!python/name:os.system", Code.BLEND_TAG),
    ("own tag", b"a: !include other.yaml", Code.BLEND_TAG),
    ("standard tag", b"a: !!str 5", Code.BLEND_TAG),
    ("bare tag", b"a: ! 5", Code.BLEND_TAG),
    ("tagged key", b"!!str a: 5", Code.BLEND_TAG),
    ("alias of its own list", b"a: &a [1, *a]", Code.BLEND_RECURSIVE),
    ("alias of its own map", b"a: &a {b: {c: *a}}", Code.BLEND_RECURSIVE),
    ("merge of itself", b"a: &a {<<: *a}", Code.BLEND_RECURSIVE),
    ("unknown alias", b"a: *b", Code.BLEND_SYNTAX),
    ("anchor twice", b"a: &a 1\nb: &a 2", Code.BLEND_SYNTAX),
    ("same key", b"a: 1\nb: 2\na: 3", Code.BLEND_DUPLICATE_KEY),
    ("same number", b"{1: a, 0x1: b}", Code.BLEND_DUPLICATE_KEY),
    ("same merge", b"a: &a {x: 1}\nb: {<<: *a, <<: *a}", Code.BLEND_DUPLICATE_KEY),
    ("list as key", b"? [a]\n: 1", Code.BLEND_SHAPE),
    ("map as key", b"{{a: 1}: 2}", Code.BLEND_SHAPE),
    ("aliased list as key", b"a: &a [1]\n*a : 2", Code.BLEND_SHAPE),
    ("null key", b"{~: 1}", Code.BLEND_SHAPE),
    ("merge of a scalar", b"a: {<<: 5}", Code.BLEND_SHAPE),
    ("two documents", b"a: 1\n---\nb: 1", Code.BLEND_SYNTAX),
    ("nothing", b"", Code.BLEND_EMPTY),
    ("comment only", b"# hello\n", Code.BLEND_EMPTY),
    ("null", b"---\n...\n", Code.BLEND_EMPTY),
    ("not UTF-8", b"a: \xff\xfe", Code.BLEND_SYNTAX),
    ("UTF-16", "a: 1".encode("utf-16"), Code.BLEND_SYNTAX),
    ("control character", b"a: \x01", Code.BLEND_SYNTAX),
    ("open quote", b"a: 'x", Code.BLEND_SYNTAX),
    ("colon", b"a: b: c", Code.BLEND_SYNTAX),
    ("long number", b"a: " + b"9" * 5000, Code.BLEND_SYNTAX),
    ("empty hex", b"a: 0x_", Code.BLEND_SYNTAX),
]


@pytest.mark.parametrize(("text", "code"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_hostile_input_is_refused_at_once(text: bytes, code: Code) -> None:
    started = time.perf_counter()
    with pytest.raises(BlendexError) as caught:
        parse(text, "blend.yaml")
    assert time.perf_counter() - started < 0.5
    assert caught.value.code is code
    assert caught.value.file == "blend.yaml"
    assert caught.value.next_step
    assert len(str(caught.value)) < 400


def test_tabs_are_named_with_their_line() -> None:
    with pytest.raises(BlendexError, match="tab") as caught:
        parse(table("cases.json")["tabs.yaml"].encode(), "f")
    assert caught.value.line == 2


def test_a_byte_order_mark_is_no_text() -> None:
    assert parse("\ufeffa: 1".encode(), "f") == {"a": 1}


def test_limits_are_the_callers() -> None:
    assert parse(b"[[1]]", "f", Limits(depth=2, nodes=3)) == [[1]]
    with pytest.raises(BlendexError, match="deeper than 1"):
        parse(b"[[1]]", "f", Limits(depth=1))
    with pytest.raises(BlendexError, match="more than 2 nodes"):
        parse(b"[[1]]", "f", Limits(nodes=2))


def test_ten_thousand_entries_are_one_tree() -> None:
    row = "- type: nemo\n  manifest_filepath: /d/m__OP_0..3_CL_.json\n  weight: 0.5\n  tags: {lang: en}\n"
    text = (row * 10_000).encode()
    tree = parse(text, "f")
    assert len(tree) == 10_000  # type: ignore[arg-type]
