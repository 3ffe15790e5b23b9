"""Launcher scripts read as text: sbatch and shell line by line, NeMo-Run python by its syntax tree. Nothing is run.

What a variable would be at run time is not guessed: a value that depends on one that differs between chunks is called
varying, one that cannot be told is left out.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from blendex.errors import BlendexError, Code
from blendex.lint.facts import seconds_of

LARGEST = 1024 * 1024
# What differs between the chunks of a chain, wherever it stands.
_MOVING = frozenset(
    (
        "RANDOM", "SRANDOM", "EPOCHSECONDS", "EPOCHREALTIME", "SECONDS", "PPID", "SLURM_JOB_ID", "SLURM_JOBID",
        "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_JOB_ID", "SLURM_RESTART_COUNT", "1", "2", "3",
    )
)  # fmt: skip
_VARYING = re.compile(r"\$\$|\$\(\s*(?:date|shuf|uuidgen|od|openssl)\b|`\s*(?:date|shuf|uuidgen)\b")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*|\d)")
_ASSIGN = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_OVERRIDE = re.compile(r"[~+]{0,2}([A-Za-z_][\w\-]*(?:\.[\w\-]+)*(?:\[\w*\])*)=(.*)", re.DOTALL)
_SEED = re.compile(r"(?:^|[._\-])seed$", re.IGNORECASE)
_LOOP = re.compile(r"^\s*(?:for\s+([A-Za-z_]\w*)\s+in\b|while\b|until\b)")
_TRAINS = re.compile(r"(?:^|[\s/])(?:torchrun|srun|python3?|mpirun|accelerate|nemo)(?:\s|$)")
_COPIES = ("rsync", "cp", "scp", "tar", "aws", "s5cmd", "ais", "gsutil", "rclone", "dcp", "mpifileutils", "sbcast")
_NAMED_STAGE = re.compile(
    r"(?:stag|prefetch|warm_?up|warm_?cache|copy_?data|sync_?data|sync_?idx|preload)", re.IGNORECASE
)
_QUIET = re.compile(r"\|\|\s*(?:true|:)(?:\s|$)|>\s*/dev/null|&>\s*/dev/null|(?<!&)&\s*$|2>/dev/null")
_SBATCH = re.compile(r"^#SBATCH\s+(?:--([\w\-]+)(?:[=\s]\s*(\S+))?|-([a-zA-Z])\s*(\S+))")
_SHORT = {"N": "nodes", "t": "time", "n": "ntasks", "a": "array", "c": "cpus-per-task"}


@dataclass(frozen=True, slots=True)
class Said:
    """A value that a launcher gives, and where; ``varies`` when chunks of one chain get different ones."""

    value: str
    line: int
    varies: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A step that brings data or indexes to a node.

    Args:
        line: where.
        command: its first words.
        target: where it copies to, as far as that can be told.
        hidden: why a reader of the log would not see it fail; empty when he would.
    """

    line: int
    command: str
    target: str
    hidden: str


@dataclass
class Launcher:
    """What one script says.

    Args:
        file: its name.
        language: ``shell`` or ``python``.
        environment: variables that it sets for the training.
        overrides: fields of the config that it sets: dotted name → every value.
        options: options of the scheduler.
        seeds: values of seeds that are no override.
        steps: staging.
        image: the container image.
        hooks: options that let a container start without a GPU, or ask for one.
        trains: lines that start the training.
    """

    file: str
    language: str
    environment: dict[str, Said] = field(default_factory=dict)
    overrides: dict[str, list[Said]] = field(default_factory=dict)
    options: dict[str, Said] = field(default_factory=dict)
    seeds: list[tuple[str, Said]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    image: Said | None = None
    hooks: list[Said] = field(default_factory=list)
    trains: list[int] = field(default_factory=list)

    @property
    def walltime(self) -> tuple[float, Said] | None:
        """Seconds of one chunk, by the scheduler's option."""
        said = self.options.get("time")
        seconds = seconds_of(said.value) if said is not None else None
        return (seconds, said) if seconds is not None and said is not None else None

    def override(self, name: str, value: str, line: int, varies: bool) -> None:
        """Note one override."""
        self.overrides.setdefault(name, []).append(Said(value, line, varies))


def read_launcher(text: bytes, file: str) -> Launcher:
    """What a launcher script says.

    Raises:
        BlendexError: bad_request: it is too large, not UTF-8, or no Python where its name says so.
    """
    if len(text) > LARGEST:
        raise _bad(file, f"it has more than {LARGEST:,} bytes.", "Give the script itself, not a bundle.")
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError:
        raise _bad(file, "it is not UTF-8.", "Save it as UTF-8.") from None
    first = decoded.partition("\n")[0]
    if file.endswith(".py") or (first.startswith("#!") and "python" in first):
        return _Python(file, decoded).read()
    return _shell(file, decoded)


def _bad(file: str, message: str, next_step: str, line: int | None = None) -> BlendexError:
    return BlendexError(
        Code.BAD_REQUEST, f"The launcher cannot be read: {message}", file=file, line=line, next_step=next_step
    )


# Shell


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations, and the number of the first."""
    start, held = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if not held:
            start = number
        if line.endswith("\\") and not line.endswith("\\\\"):
            held += line[:-1] + " "
            continue
        yield start, held + line
        held = ""
    if held:
        yield start, held


def _glued(line: str) -> str:
    """``$(…)`` and ``$((…))`` made one word each."""
    made: list[str] = []
    depth = 0
    for index, char in enumerate(line):
        if char == "(" and (depth or line[index - 1 : index] == "$"):
            depth += 1
        elif char == ")" and depth:
            depth -= 1
        made.append("\u00a0" if depth and char in " \t" else char)
    return "".join(made)


def _words(line: str) -> list[str]:
    line = _glued(line)
    try:
        return shlex.split(line, comments=True, posix=True)
    except ValueError:
        return line.split()


class _Shell:
    def __init__(self, file: str) -> None:
        self.launcher = Launcher(file, "shell")
        self.values: dict[str, str] = {}
        self.varying: set[str] = set()
        self.loops: list[str] = []

    def line(self, number: int, line: str) -> None:
        bare = line.strip()
        option = _SBATCH.match(bare)
        if option:
            name = option.group(1) or _SHORT.get(option.group(3), option.group(3))
            self.launcher.options.setdefault(name, Said(option.group(2) or option.group(4) or "", number))
            return
        if not bare or bare.startswith("#"):
            return
        loop = _LOOP.match(bare)
        if loop:
            self.loops.append(loop.group(1) or "")
            if loop.group(1):
                self.varying.add(loop.group(1))
            return
        if re.match(r"done\b", bare) and self.loops:
            self.varying.discard(self.loops.pop())
            return
        words = _words(bare)
        if words:
            self._command(number, bare, words)

    def _varies(self, text: str) -> bool:
        if _VARYING.search(text):
            return True
        names = _VARIABLE.findall(text)
        for inside in re.findall(r"\$\(\((.*)", text):
            names += re.findall(r"[A-Za-z_]\w*", inside)
        # A positional parameter is what the caller of each chunk chooses.
        return any(name in self.varying or name in _MOVING for name in names)

    def _expanded(self, text: str) -> str:
        """Known constants put in; what is not known stays as it is written."""
        return _VARIABLE_FULL.sub(lambda m: self.values.get(m.group(1) or m.group(2), m.group(0)), text)

    def _command(self, number: int, bare: str, words: list[str]) -> None:
        while words and words[0] in (
            "export",
            "then",
            "do",
            "else",
            "time",
            "exec",
            "sudo",
            "env",
            "local",
            "readonly",
        ):
            words = words[1:]
        while words and (match := _ASSIGN.fullmatch(words[0])):
            self._assign(number, match.group(1), match.group(2))
            words = words[1:]
        if not words:
            return
        self._stage(number, bare, words)
        if _TRAINS.search(bare) and any("=" in word or word.endswith(".py") for word in words):
            self.launcher.trains.append(number)
        for index, word in enumerate(words):
            self._word(number, word, words[index + 1] if index + 1 < len(words) else "")

    def _assign(self, number: int, name: str, value: str) -> None:
        varies = self._varies(value)
        (self.varying.add if varies else self.varying.discard)(name)
        expanded = self._expanded(value)
        if "$" not in expanded and "`" not in expanded:
            self.values[name] = expanded
        else:
            self.values.pop(name, None)
        self.launcher.environment[name] = Said(expanded, number, varies)
        if _SEED.search(name) or name == "PL_GLOBAL_SEED":
            self.launcher.seeds.append((name, Said(expanded, number, varies)))

    def _word(self, number: int, word: str, following: str) -> None:
        option, sign, given = word.partition("=")
        if option.startswith("--"):
            value = given if sign else following
            name = option[2:]
            if name in ("container-image", "image"):
                self.launcher.image = Said(value, number)
            elif name in ("no-container-mount-home", "nv", "gpus", "no-gpu-hook"):
                self.launcher.hooks.append(Said(word, number))
            elif name in ("nodes", "nnodes", "nproc-per-node", "nproc_per_node", "ntasks-per-node", "time"):
                self.launcher.options.setdefault(name.replace("_", "-"), Said(value, number, self._varies(value)))
            elif _SEED.search(name):
                self.launcher.seeds.append((name, Said(self._expanded(value), number, self._varies(value))))
            elif name == "export":
                for item in given.split(","):
                    match = _ASSIGN.fullmatch(item)
                    if match:
                        self._assign(number, match.group(1), match.group(2))
            return
        match = _OVERRIDE.fullmatch(word)
        if match and "/" not in match.group(1):
            self.launcher.override(match.group(1), self._expanded(match.group(2)), number, self._varies(match.group(2)))

    def _stage(self, number: int, bare: str, words: list[str]) -> None:
        command = words[0].rpartition("/")[2]
        script = next((word for word in words[:2] if word.endswith(".sh")), "")
        named = _NAMED_STAGE.search(script or command) if (script or command.endswith(".sh")) else None
        copies = command in _COPIES or (command == "srun" and any(word in _COPIES for word in words))
        if not copies and named is None:
            return
        hidden = ""
        if named is not None:
            hidden = "what it copies stands in another script"
        elif _QUIET.search(bare):
            hidden = "its failure is thrown away, or it runs in the background"
        target = next((word for word in reversed(words) if word.startswith(("/", "$")) or "/" in word), "")
        self.launcher.steps.append(Step(number, " ".join(words[:2])[:80], self._expanded(target), hidden))


_VARIABLE_FULL = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")


def _shell(file: str, text: str) -> Launcher:
    shell = _Shell(file)
    document = ""
    for number, line in _logical(text):
        if document:  # the text of a here-document is no command, except where it is the script of a job
            if line.strip() == document:
                document = ""
            continue
        shell.line(number, line)
        here = re.search(r"(?<!<)<<-?\s*['\"]?([A-Za-z_]\w*)['\"]?", line)
        if here:
            document = here.group(1)
    return shell.launcher


# NeMo-Run


_MOVES = ("random", "randint", "randrange", "time", "time_ns", "now", "getpid", "uuid4", "urandom", "getrandbits")
_KEYWORDS = {"time": "time", "nodes": "nodes", "ntasks_per_node": "ntasks-per-node", "gpus_per_node": "gpus-per-node"}


class _Python(ast.NodeVisitor):
    def __init__(self, file: str, text: str) -> None:
        self.launcher = Launcher(file, "python")
        self.text = text
        self.constants: dict[str, str] = {}
        self.varying: set[str] = set()

    def read(self) -> Launcher:
        try:
            tree = ast.parse(self.text)
        except SyntaxError as error:
            raise _bad(
                self.launcher.file, "it is no Python.", "Correct it, or give the script that sbatch gets.", error.lineno
            ) from None
        except (ValueError, RecursionError, MemoryError):
            raise _bad(self.launcher.file, "it is nested too deep, or holds NUL.", "Simplify it.") from None
        try:
            self.visit(tree)
        except RecursionError:
            raise _bad(self.launcher.file, "it is nested too deep.", "Simplify it.") from None
        return self.launcher

    def _text(self, node: ast.expr) -> tuple[str, bool]:
        """A value as text, and whether chunks get different ones."""
        varies = any(
            (isinstance(part, ast.Name) and part.id in self.varying)
            or (isinstance(part, ast.Call) and _called(part) in _MOVES)
            for part in ast.walk(node)
        )
        if isinstance(node, ast.Constant):
            return str(node.value), varies
        if isinstance(node, ast.Name) and node.id in self.constants:
            return self.constants[node.id], varies
        if isinstance(node, ast.JoinedStr):
            made = ""
            for part in node.values:
                inner = part.value if isinstance(part, ast.FormattedValue) else part
                piece, _ = self._text(inner)
                made += piece
            return made, varies
        return ast.unparse(node)[:200], varies

    def visit_For(self, node: ast.For) -> None:
        names = {part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)}
        self.varying |= names
        self.generic_visit(node)
        self.varying -= names

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        # What a caller hands in is chosen by whoever starts the chunk, when its name says so.
        chunks = {arg.arg for arg in node.args.args if re.search(r"chunk|run_?i|attempt|job_?i", arg.arg)}
        self.varying |= chunks
        given = zip(node.args.args[::-1], node.args.defaults[::-1], strict=False)
        usual = {arg.arg: str(value.value) for arg, value in given if isinstance(value, ast.Constant)}
        outer, self.constants = self.constants, {**self.constants, **usual}
        self.generic_visit(node)
        self.constants = outer
        self.varying -= chunks

    def visit_Assign(self, node: ast.Assign) -> None:
        text, varies = self._text(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                (self.varying.add if varies else self.varying.discard)(target.id)
                if isinstance(node.value, ast.Constant):
                    self.constants[target.id] = text
                if _SEED.search(target.id):
                    self.launcher.seeds.append((target.id, Said(text, node.lineno, varies)))
            elif isinstance(target, ast.Attribute):
                self._attribute(target, node.value, text, varies)
            elif isinstance(target, ast.Subscript):
                self._subscript(target, text, varies)
        self.generic_visit(node)

    def _attribute(self, target: ast.Attribute, value: ast.expr, text: str, varies: bool) -> None:
        names = _dotted(target)
        if names[-1] == "env_vars" and isinstance(value, ast.Dict):
            self._environment(value)
        elif len(names) > 2:
            # recipe.trainer.max_steps = 1000: the first name is a variable of the script.
            self.launcher.override(".".join(names[1:]), text, target.lineno, varies)
        if _SEED.search(names[-1]):
            self.launcher.seeds.append((".".join(names), Said(text, target.lineno, varies)))

    def _subscript(self, target: ast.Subscript, text: str, varies: bool) -> None:
        names = _dotted(target.value)
        if names[-1] in ("environ", "env_vars", "env") and isinstance(target.slice, ast.Constant):
            self.launcher.environment[str(target.slice.value)] = Said(text, target.lineno, varies)

    def _environment(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                text, varies = self._text(value)
                self.launcher.environment[key.value] = Said(text, key.lineno, varies)

    def visit_Call(self, node: ast.Call) -> None:
        called = _called(node)
        for keyword in node.keywords:
            if keyword.arg is None:
                continue
            text, varies = self._text(keyword.value)
            said = Said(text, keyword.value.lineno, varies)
            if keyword.arg == "env_vars" and isinstance(keyword.value, ast.Dict):
                self._environment(keyword.value)
            elif keyword.arg in _KEYWORDS and ("Executor" in called or "executor" in called):
                self.launcher.options.setdefault(_KEYWORDS[keyword.arg], said)
            elif keyword.arg == "container_image":
                self.launcher.image = said
            elif _SEED.search(keyword.arg):
                self.launcher.seeds.append((keyword.arg, said))
        if called in ("system", "run", "check_call", "Popen", "call", "Script"):
            self._commands(node)
        self.generic_visit(node)

    def _commands(self, node: ast.Call) -> None:
        for argument in [*node.args, *(word.value for word in node.keywords if word.arg in ("inline", "args"))]:
            parts = argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]
            texts = [self._text(part)[0] for part in parts if isinstance(part, ast.Constant | ast.JoinedStr)]
            if len(texts) > 1:
                texts = [" ".join(texts)]
            for text in texts:
                inner = _shell(self.launcher.file, text)
                for step in inner.steps:
                    self.launcher.steps.append(Step(node.lineno, step.command, step.target, step.hidden))

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._string(node.value, node.lineno, False)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        text, varies = self._text(node)
        self._string(text, node.lineno, varies)

    def _string(self, text: str, line: int, varies: bool) -> None:
        match = _OVERRIDE.fullmatch(text)
        if match and "." in match.group(1) and "\n" not in text:
            self.launcher.override(match.group(1), match.group(2), line, varies)


def _called(node: ast.Call) -> str:
    return _dotted(node.func)[-1]


def _dotted(node: ast.expr) -> list[str]:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    names.append(node.id if isinstance(node, ast.Name) else "")
    return names[::-1]
