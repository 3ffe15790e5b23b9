"""``${…}`` as OmegaConf 2.4 resolves it, from what the submission brought along and nothing else.

Of resolvers only ``oc.env`` is known, and it reads ``World.env``. Names are looked up in the submission's
variables, then from the root of the declaring file, then from the root of the posted file: upstream's own
loading re-parents a blend under ``data_blend_dir``, and the training config is the root of an inlined one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from blendex.blend.load import MapNode, SeqNode
from blendex.blend.model import Pointer
from blendex.blend.world import World
from blendex.errors import BlendexError, Code

MAX_CHAIN = 32
MAX_LENGTH = 65_536
_MAX_NESTING = 16

_OPEN = re.compile(r"(\\*)\$\{")
_KEY = re.compile(r"(?:(?!\$\{)[^\\{}()\[\]:.\s'\"])+")
_NAME = re.compile(r"[A-Za-z_][\w\-]*(?:\.[A-Za-z_][\w\-]*)*\s*:")
_WORD = re.compile(r"(?:(?!\$\{)[\w/\-+.$%*@?|: \t])+")
_INTEGER = re.compile(r"[+-]?(?:0|[1-9](?:_?\d)*)$", re.ASCII)
_FLOAT = re.compile(
    r"[+-]?(?:(?:\d(?:_?\d)*)?\.\d(?:_?\d)*|\d(?:_?\d)*\.)(?:e[+-]?\d(?:_?\d)*)?$"
    r"|[+-]?\d(?:_?\d)*e[+-]?\d(?:_?\d)*$|[+-]?(?:inf|nan)$",
    re.ASCII | re.IGNORECASE,
)
_NOT_FOUND = object()


@dataclass(frozen=True, eq=False)
class Document:
    """One YAML file: its name in messages, the folder its relative ``input_cfg`` mean, its tree."""

    name: str
    folder: str | None
    root: MapNode | SeqNode


@dataclass(frozen=True, slots=True)
class Place:
    """A container: the file it is written in, and the keys that lead to it there."""

    document: Document
    path: Pointer = ()

    def child(self, key: str | int) -> Place:
        """The container under ``key``."""
        return Place(self.document, (*self.path, key))


@dataclass(frozen=True, slots=True)
class Value:
    """A resolved value; ``place`` says where it is written when it is a container."""

    value: Any
    place: Place | None = None


@dataclass(frozen=True)
class _Env:
    name: tuple[Any, ...]
    default: tuple[Any, ...] | None


@dataclass(frozen=True)
class _Reference:
    dots: int
    keys: tuple[tuple[Any, bool], ...]


class Resolver:
    """Resolves the interpolations of one blend.

    Args:
        world: what the submission brought along.
        posted: the posted file.
    """

    def __init__(self, world: World, posted: Document) -> None:
        self.world = world
        self.posted = posted
        self._known: dict[tuple[Document, Pointer], Value] = {}
        self._active: set[tuple[Document, Pointer]] = set()

    def resolve(self, raw: Any, at: Place, key: str | int) -> Value:
        """What the value ``raw`` under ``key`` of the container ``at`` means.

        Raises:
            BlendexError: UNKNOWN_VARIABLE, UNSUPPORTED_INTERPOLATION, MISSING_KEY, BLEND_RECURSIVE,
                BLEND_TOO_DEEP, BAD_VALUE; without a file and line, which the caller knows.
        """
        if isinstance(raw, MapNode | SeqNode):
            return Value(raw, at.child(key))
        if not isinstance(raw, str) or "${" not in raw:
            return Value(raw)
        where = (at.document, (*at.path, key))
        if where in self._known:
            return self._known[where]
        if where in self._active:
            raise BlendexError(
                Code.BLEND_RECURSIVE, "An interpolation leads back to itself.", next_step="Break the circle."
            )
        if len(self._active) >= MAX_CHAIN:
            raise BlendexError(
                Code.BLEND_TOO_DEEP,
                f"Interpolations lead from one to the next more than {MAX_CHAIN} times.",
                next_step="Shorten the chain.",
            )
        self._active.add(where)
        try:
            value = self._text(_parsed(raw), at)
        finally:
            self._active.discard(where)
        self._known[where] = value
        return value

    def value(self, raw: Any, at: Place, key: str | int) -> Any:
        """The value alone of what ``resolve`` finds; raises what it raises."""
        return self.resolve(raw, at, key).value if interpolated(raw) else raw

    def _text(self, parts: tuple[Any, ...], at: Place) -> Value:
        if len(parts) == 1 and not isinstance(parts[0], str):
            return self._part(parts[0], at)
        made: list[str] = []
        length = 0
        for part in parts:
            value = part if isinstance(part, str) else self._part(part, at).value
            if isinstance(value, dict | list):
                raise BlendexError(
                    Code.BAD_VALUE,
                    "An interpolation inside a string means a list or a mapping.",
                    next_step="Point it to a plain value.",
                )
            made.append(str(value))
            length += len(made[-1])
            if length > MAX_LENGTH:
                raise BlendexError(
                    Code.BAD_VALUE,
                    f"An interpolated string grows beyond {MAX_LENGTH:,} characters.",
                    next_step="Shorten it.",
                )
        return Value("".join(made))

    def _part(self, part: _Env | _Reference, at: Place) -> Value:
        return Value(self._env(part, at)) if isinstance(part, _Env) else self._reference(part, at)

    def _env(self, part: _Env, at: Place) -> str | None:
        name = str(self._text(part.name, at).value)
        if name in self.world.env:
            return self.world.env[name]
        if part.default is None:
            raise BlendexError(
                Code.UNKNOWN_VARIABLE,
                f"The environment variable {name} is not part of this submission.",
                next_step=f"Pass it along: --env {name}=… on the command line, env={name}=… in a request.",
            )
        if len(part.default) == 1 and isinstance(part.default[0], _Word):
            return part.default[0].converted
        value = self._text(part.default, at).value
        if isinstance(value, dict | list):
            raise BlendexError(
                Code.BAD_VALUE,
                f"The default of the environment variable {name} is a list or a mapping.",
                next_step="Point it to a plain value.",
            )
        return None if value is None else str(value)

    def _reference(self, part: _Reference, at: Place) -> Value:
        dots, keys = part.dots, self._keys(part, at)
        shown = "." * dots + ".".join(keys)
        if dots:
            above = len(at.path) - (dots - 1)
            found = self._select(Place(at.document, at.path[: max(above, 0)]), keys) if above >= 0 else None
            if found is None:
                raise _unknown(shown, relative=True)
            return found
        if shown in self.world.variables:
            return Value(self.world.variables[shown])
        for document in (at.document, self.posted):
            found = self._select(Place(document), keys)
            if found is not None:
                return found
        raise _unknown(shown, relative=False)

    def _keys(self, part: _Reference, at: Place) -> list[str]:
        keys: list[str] = []
        for token, bracketed in part.keys:
            if isinstance(token, str):
                keys.append(token)
                continue
            value = self._part(token, at).value
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise BlendexError(
                    Code.BAD_VALUE,
                    "A nested interpolation is used as a name, and is neither text nor a whole number.",
                    next_step="Point it to the name of a key.",
                )
            text = str(value)
            pieces = [text] if bracketed else text.split(".")
            if not all(pieces):
                _unreadable("a nested interpolation gives an empty name")
            keys.extend(pieces)
        return keys

    def _select(self, start: Place, keys: list[str]) -> Value | None:
        current = Value(locate(start), start)
        for key in keys:
            node, place = current.value, current.place
            if place is None:
                return None
            step: str | int = key
            if isinstance(node, SeqNode):
                if not key.isdecimal() or not key.isascii() or len(key) > 9 or int(key) >= len(node):
                    return None
                step = int(key)
                child = node[step]
            elif isinstance(node, MapNode):
                child = node.get(key, _NOT_FOUND)
                if child is _NOT_FOUND:
                    return None
            else:
                return None
            if child == "???":
                raise BlendexError(
                    Code.MISSING_KEY,
                    f"The mandatory value {'.'.join(keys)} is not set (???).",
                    next_step="Set it in the blend.",
                )
            current = self.resolve(child, place, step)
        return current


def locate(place: Place) -> Any:
    """The container at ``place``."""
    node: Any = place.document.root
    for key in place.path:
        node = node[key]
    return node


def interpolated(raw: Any) -> bool:
    """Whether ``raw`` is a string that OmegaConf would resolve."""
    return isinstance(raw, str) and "${" in raw


def escape(text: str) -> str:
    """The spelling that OmegaConf resolves to exactly ``text``."""
    return _OPEN.sub(lambda match: match.group(1) * 2 + "\\${", text)


def _unknown(name: str, *, relative: bool) -> BlendexError:
    if relative:
        return BlendexError(
            Code.UNKNOWN_VARIABLE,
            f"${{{name}}} points to nothing in its file.",
            next_step="Correct the relative interpolation.",
        )
    return BlendexError(
        Code.UNKNOWN_VARIABLE,
        f"The variable {name} is set neither by the blend nor by the submission.",
        next_step=f"Pass it along: --var {name}=… on the command line, var={name}=… in a request.",
    )


def _unreadable(why: str) -> NoReturn:
    raise BlendexError(
        Code.UNSUPPORTED_INTERPOLATION,
        f"An interpolation cannot be read: {why}.",
        next_step="Write it as ${name}, ${a.b}, ${a[0]}, ${.x} or ${oc.env:NAME,default}; \\${ is literal.",
    )


@lru_cache(maxsize=256)
def _parsed(text: str) -> tuple[Any, ...]:
    if len(text) > MAX_LENGTH:
        _unreadable(f"the string has more than {MAX_LENGTH:,} characters")
    return _Parser(text).text()


@dataclass(frozen=True)
class _Word:
    """An unquoted default of ``oc.env``."""

    raw: str

    @property
    def converted(self) -> str | None:
        """OmegaConf types the default by its own grammar, and ``oc.env`` makes a string of it again."""
        lower = self.raw.lower()
        if lower == "null":
            return None
        if lower in ("true", "false"):
            return str(lower == "true")
        if _INTEGER.match(self.raw):
            return str(int(self.raw.replace("_", "")))
        if _FLOAT.match(self.raw):
            return str(float(self.raw.replace("_", "")))
        return self.raw


class _Parser:
    """Recursive descent over one string; its depth is bounded by ``_MAX_NESTING``."""

    def __init__(self, text: str) -> None:
        self.source = text
        self.at = 0
        self.nesting = 0

    def text(self) -> tuple[Any, ...]:
        parts: list[Any] = []
        literal = ""
        while True:
            match = _OPEN.search(self.source, self.at)
            if match is None:
                literal += self.source[self.at :]
                break
            slashes = len(match.group(1))
            literal += self.source[self.at : match.start()] + "\\" * (slashes // 2)
            self.at = match.end()
            if slashes % 2:
                literal += "${"
                continue
            if literal:
                parts.append(literal)
                literal = ""
            parts.append(self.interpolation())
        if literal or not parts:
            parts.append(literal)
        return tuple(parts)

    def interpolation(self) -> _Env | _Reference:
        """What follows a ``${``, through its closing brace."""
        self.nesting += 1
        if self.nesting > _MAX_NESTING:
            _unreadable(f"it nests deeper than {_MAX_NESTING} levels")
        self.blank()
        name = _NAME.match(self.source, self.at)
        if name is not None:
            self.at = name.end()
            part: _Env | _Reference = self.resolver(name.group()[:-1].rstrip())
        else:
            part = self.reference()
        self.blank()
        self.expect("}")
        self.nesting -= 1
        return part

    def resolver(self, name: str) -> _Env:
        if name != "oc.env":
            raise BlendexError(
                Code.UNSUPPORTED_INTERPOLATION,
                f"The resolver {name} is not supported; only oc.env is.",
                next_step="Write the value out, or post the composed and resolved config.",
            )
        variable = self.argument()
        if len(variable) == 1 and isinstance(variable[0], _Word):
            variable = (variable[0].raw,)
        self.blank()
        default = None
        if self.peek() == ",":
            self.at += 1
            default = self.argument()
        return _Env(variable, default)

    def argument(self) -> tuple[Any, ...]:
        self.blank()
        quote = self.peek()
        if quote in ("'", '"'):
            end = self.source.find(quote, self.at + 1)
            inside = self.source[self.at + 1 : end]
            if end < 0 or "\\" in inside or "${" in inside:
                _unreadable("a quoted argument is not closed, or holds a backslash or an interpolation")
            self.at = end + 1
            return (inside,)
        parts: list[Any] = []
        while True:
            if self.source.startswith("${", self.at):
                self.at += 2
                parts.append(self.interpolation())
                continue
            match = _WORD.match(self.source, self.at)
            if match is None:
                break
            parts.append(match.group())
            self.at = match.end()
        if parts and isinstance(parts[-1], str):
            parts[-1] = parts[-1].rstrip()
            parts = parts if parts[-1] else parts[:-1]
        if not parts:
            _unreadable("an argument of oc.env is empty or needs quotes")
        if len(parts) == 1 and isinstance(parts[0], str):
            return (_Word(parts[0]),)
        return tuple(parts)

    def reference(self) -> _Reference:
        dots = 0
        while self.peek() == ".":
            dots += 1
            self.at += 1
        keys: list[tuple[Any, bool]] = []
        while True:
            if self.peek() == "[":
                self.at += 1
                keys.append((self.key(), True))
                self.expect("]")
            elif not keys:
                keys.append((self.key(), False))
            elif self.peek() == ".":
                self.at += 1
                keys.append((self.key(), False))
            else:
                return _Reference(dots, tuple(keys))

    def key(self) -> Any:
        if self.source.startswith("${", self.at):
            self.at += 2
            return self.interpolation()
        match = _KEY.match(self.source, self.at)
        if match is None:
            _unreadable("a name is missing")
        self.at = match.end()
        return match.group()

    def peek(self) -> str:
        return self.source[self.at : self.at + 1]

    def blank(self) -> None:
        while self.peek() in (" ", "\t"):
            self.at += 1

    def expect(self, mark: str) -> None:
        if self.peek() != mark:
            _unreadable(f"{mark} is missing")
        self.at += 1
