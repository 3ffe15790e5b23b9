"""Interpolations against OmegaConf, and where they stop."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from blendex.blend.interpolate import Document, Place, Resolver, escape
from blendex.blend.load import MapNode, SeqNode, parse
from blendex.blend.world import World
from blendex.errors import BlendexError, Code

ROOT = """
name: en
n: 3
f: 0.5
b: true
nil: null
dir: /data/${name}
deep: {a: {x: 1, y: "${.x}", z: "${..q}", up: "${...name}"}, q: [p0, "${name}", {k: v}]}
pick: name
path: deep.a
i: 1
missing: ???
loop: ${loop2}
loop2: ${loop}
self: ${self}
"""


def _document(text: str, name: str = "f") -> Document:
    root = parse(text.encode(), name)
    assert isinstance(root, MapNode | SeqNode)
    return Document(name, "/", root)


def _ours(value: str, world: World | None = None) -> Any:
    document = _document(ROOT + f"value: {_quoted(value)}\n")
    resolver = Resolver(world or World(), document)
    root = document.root
    assert isinstance(root, MapNode)
    return resolver.resolve(root["value"], Place(document), "value").value


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _oracle(value: str) -> Any:
    config = OmegaConf.create(ROOT + f"value: {_quoted(value)}\n")
    return config.value  # type: ignore[union-attr]


AGREED = [
    "${name}", "a${name}b", "${dir}/x", "${n}", "v${n}", "${f}-${b}-${nil}", "${deep.a.x}", "${deep.a.y}",
    "${deep.a.z[1]}", "${deep.a.up}", "${deep.q[0]}", "${deep.q.1}", "${deep[q][2].k}", "${ name }",
    "${${pick}}",
    "${deep.${pick2}}", "${deep.q[${i}]}", "${${path}.x}", r"\${name}", r"\\${name}", r"\\\${name}",
    r"a\b${name}",
    r"\\", "$name", "${.name}", "$${name}", "${name}}", "}{${name}", r"x\${y}z${name}", "${[name]}",
    "${deep.[a].x}",
    "${deep[a][x]}", "${.deep.a.x}",
]  # fmt: skip


@pytest.mark.parametrize("value", AGREED)
def test_agreed(value: str) -> None:
    try:
        wanted = _oracle(value)
    except OmegaConfBaseException:
        with pytest.raises(BlendexError):
            _ours(value)
        return
    assert _ours(value) == wanted


_atoms = st.sampled_from(
    ["${name}", "${n}", "${deep.a.x}", "${dir}", r"\${name}", r"\\${n}", "\\", "$", "x", "{", "}", "/", " ",
     "${i}",
     "${deep.q[0]}", "${nope}", "${deep.q[9]}", "${${pick}}", "${missing}"]
)  # fmt: skip


@settings(max_examples=250, deadline=None)
@given(st.lists(_atoms, min_size=1, max_size=5).map("".join))
def test_strings_agree(value: str) -> None:
    try:
        wanted = _oracle(value)
    except OmegaConfBaseException:
        with pytest.raises(BlendexError):
            _ours(value)
        return
    assert _ours(value) == wanted


DEFAULTS = ["/data", "5", "007", "1_000", "1e3", ".5", "true", "False", "null", "NULL", "a b", "'quoted, x'",
            '"q"', "a:b", "x-y", "${name}", "${name}/x", "${oc.env:ALSO_NOT,z}", "${nil}",
            "+5", "1.", "nan"]  # fmt: skip


@pytest.mark.parametrize("default", DEFAULTS)
def test_defaults_of_the_environment_agree(default: str) -> None:
    assert "NOT_SET_ANYWHERE" not in os.environ
    value = f"${{oc.env:NOT_SET_ANYWHERE,{default}}}"
    assert _ours(value) == _oracle(value)


def test_the_environment_is_the_submissions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "from-the-service")
    assert _ours("${oc.env:SECRET}/a", World(env={"SECRET": "mine"})) == "mine/a"
    assert _ours("${oc.env:SECRET,default}") == "default"
    with pytest.raises(BlendexError, match="SECRET is not part") as caught:
        _ours("${oc.env:SECRET}")
    assert caught.value.code is Code.UNKNOWN_VARIABLE
    assert "--env SECRET=" in caught.value.next_step


def test_variables_come_first_and_literally() -> None:
    world = World(variables={"name": "${n}", "a.b": "dotted"})
    assert _ours("${name}", world) == "${n}"
    assert _ours("${dir}", world) == "/data/${n}"
    assert _ours("${a.b}", world) == "dotted"


def test_the_declaring_file_comes_before_the_posted_one() -> None:
    posted = _document("x: posted\ny: posted-y\nz: ${x}\n")
    nested = _document("x: nested\nl: [{k: '${x}'}, '${y}', '${z}', '${..x}']\n", "n")
    resolver = Resolver(World(), posted)
    items = nested.root["l"]  # type: ignore[call-overload]
    place = Place(nested, ("l",))
    assert resolver.resolve(items[0]["k"], place.child(0), "k").value == "nested"
    assert resolver.resolve(items[1], place, 1).value == "posted-y"
    assert resolver.resolve(items[2], place, 2).value == "posted"
    assert resolver.resolve(items[3], place, 3).value == "nested"


@pytest.mark.parametrize(
    ("value", "code", "named"),
    [
        ("${nope.such}", Code.UNKNOWN_VARIABLE, "nope.such"),
        ("${deep.a.x.y}", Code.UNKNOWN_VARIABLE, "deep.a.x.y"),
        ("${deep.q[7]}", Code.UNKNOWN_VARIABLE, "deep.q.7"),
        ("${..x}", Code.UNKNOWN_VARIABLE, "..x"),
        ("${...........x}", Code.UNKNOWN_VARIABLE, "x"),
        ("${hydra:runtime.cwd}", Code.UNSUPPORTED_INTERPOLATION, "hydra"),
        ("${oc.decode:x}", Code.UNSUPPORTED_INTERPOLATION, "oc.decode"),
        ("${now:%Y}", Code.UNSUPPORTED_INTERPOLATION, "now"),
        ("${oc.env:}", Code.UNSUPPORTED_INTERPOLATION, "oc.env"),
        ("${name", Code.UNSUPPORTED_INTERPOLATION, "} is missing"),
        ("${}", Code.UNSUPPORTED_INTERPOLATION, "name"),
        ("${a b}", Code.UNSUPPORTED_INTERPOLATION, "}"),
        ("${name_${n}}", Code.UNSUPPORTED_INTERPOLATION, "}"),
        ("${" * 5000, Code.UNSUPPORTED_INTERPOLATION, "deeper"),
        ("${loop}", Code.BLEND_RECURSIVE, "itself"),
        ("${self}", Code.BLEND_RECURSIVE, "itself"),
        ("x${deep}", Code.BAD_VALUE, "list or a mapping"),
        ("${missing}", Code.MISSING_KEY, "missing"),
        ("${${f}}", Code.BAD_VALUE, "name"),
    ],
)
def test_refusals(value: str, code: Code, named: str) -> None:
    with pytest.raises(BlendexError) as caught:
        _ours(value)
    assert caught.value.code is code
    assert named in caught.value.message
    assert caught.value.next_step


def test_variables_are_asked_for_by_name() -> None:
    with pytest.raises(BlendexError) as caught:
        _ours("${data_blend_dir}/x")
    assert "--var data_blend_dir=" in caught.value.next_step
    assert "var=data_blend_dir=" in caught.value.next_step


def _chain(levels: int, value: str) -> Document:
    rows = [f"a{n}: '" + value.replace("N", f"a{n + 1}") + "'" for n in range(levels)]
    return _document("\n".join([*rows, f"a{levels}: xx"]))


@pytest.mark.parametrize(
    ("levels", "value", "code"),
    [
        (30, "${N}${N}", Code.BAD_VALUE),
        (500, "${N}", Code.BLEND_TOO_DEEP),
        (30, "${N}" * 10, Code.BAD_VALUE),
    ],
)
def test_growth_is_refused_at_once(levels: int, value: str, code: Code) -> None:
    document = _chain(levels, value)
    started = time.perf_counter()
    with pytest.raises(BlendexError) as caught:
        Resolver(World(), document).resolve(document.root["a0"], Place(document), "a0")  # type: ignore[call-overload]
    assert time.perf_counter() - started < 0.5
    assert caught.value.code is code


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["${", "\\", "$", "{", "}", "a", "${name}"]), max_size=8).map("".join))
def test_an_escaped_text_means_itself(text: str) -> None:
    escaped = escape(text)
    assert _oracle(escaped) == text
    assert _ours(escaped) == text
