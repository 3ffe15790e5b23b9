"""Slots: what becomes of children that end well, badly, or not at all."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from blendex.builds import admission
from blendex.runtime import budget, frames
from blendex.runtime.inhand import InHand
from blendex.runtime.slots import Call, Slots
from tests.support.corpus import corpus


@pytest.fixture(autouse=True)
def one_at_a_time() -> Iterator[None]:
    """The kernel counts what it kills for the whole host where cgroups are of version 1: one test after another."""
    with open(Path(tempfile.gettempdir(), "blendex-tests-kernel-kills.lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def children() -> list[psutil.Process]:
    """The children of these slots: other tests of this process have servers and slots of their own."""
    return [child for child in psutil.Process().children() if "tests.runtime.functions" in child.cmdline()]


@pytest.fixture
def slots() -> Iterator[Slots]:
    made = Slots(2, "tests.runtime.functions")
    yield made
    made.close()
    assert not children()


def call(name: str, memory: int = 0, seconds: float = 30.0, **arguments: object) -> Call:
    return Call(f"tests.runtime.functions.{name}:run", arguments, memory, seconds)


def test_a_call_returns_what_the_function_returns(slots: Slots) -> None:
    ticket = slots.start(call("echo", value=[1, "ä", None]))
    outcome = slots.outcomes.get(timeout=30)
    assert (outcome.ticket, outcome.cause) == (ticket, "done")
    assert outcome.result is not None
    assert outcome.result["value"] == [1, "ä", None]
    assert outcome.progress == [{"seen": 1}]
    assert outcome.peak > 0


def test_a_child_is_used_again(slots: Slots) -> None:
    pids = set()
    for _ in range(3):
        slots.start(call("echo"))
        result = slots.outcomes.get(timeout=30).result
        assert result is not None
        pids.add(result["pid"])
    assert len(pids) == 1


def test_an_error_names_itself_and_loses_nothing(slots: Slots) -> None:
    slots.start(call("fails", code="source_missing"))
    outcome = slots.outcomes.get(timeout=30)
    assert outcome.cause == "error"
    assert outcome.error is not None
    assert (outcome.error["code"], outcome.error["next_step"]) == ("source_missing", "look")
    slots.start(call("fails"))
    outcome = slots.outcomes.get(timeout=30)
    assert outcome.error == {"code": "internal", "message": "ZeroDivisionError in tests.runtime.functions.fails:run."}
    assert "ZeroDivisionError" in outcome.log


def test_a_supervisor_that_is_through_before_it_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = Slots(1, "tests.runtime.functions")
    wake = slots._wake

    def late() -> None:
        slots._thread.join(30)
        wake()

    monkeypatch.setattr(slots, "_wake", late)
    slots.close()


def test_only_functions_of_the_package_can_be_called() -> None:
    slots = Slots(1, "tests.runtime.functions")
    try:
        slots.start(Call("os:system", {"command": "true"}))
        assert slots.outcomes.get(timeout=30).cause == "signal"
    finally:
        slots.close()


@pytest.mark.parametrize("how", ["numpy", "python"])
def test_a_child_dies_of_its_memory_before_the_machine_does_and_names_its_source(slots: Slots, how: str) -> None:
    slots.start(call("eats", memory=200 * 2**20, how=how))
    outcome = slots.outcomes.get(timeout=60)
    assert (outcome.cause, outcome.in_hand) == ("memory", "the big one")
    assert outcome.how in ("limit", "watchdog")


def test_an_allocation_that_outruns_the_watchdog_is_refused(slots: Slots) -> None:
    slots.start(call("eats", memory=200 * 2**20, how="at once"))
    outcome = slots.outcomes.get(timeout=60)
    assert (outcome.cause, outcome.how, outcome.in_hand) == ("memory", "limit", "the big one")


def test_what_the_kernel_kills_is_told_from_what_somebody_kills(slots: Slots, tmp_path: Path) -> None:
    """A memory cgroup for one child, smaller than its own limit: the kernel is first."""
    top = Path("/sys/fs/cgroup/memory") / budget._own_group("memory").lstrip("/")
    group = top / f"blendex-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(120 * 2**20))
    except OSError:
        pytest.skip("no memory cgroup can be made here")
    slots.start(call("echo"))
    slots.outcomes.get(timeout=30)
    (child,) = children()
    try:
        (group / "cgroup.procs").write_text(str(child.pid))
        slots.start(call("eats", memory=0, how="python"))
        outcome = slots.outcomes.get(timeout=60)
    finally:
        group.rmdir()
    assert (outcome.cause, outcome.how, outcome.in_hand) == ("memory", "kernel", "the big one")


def test_a_call_that_neither_reads_nor_works_has_stalled(slots: Slots) -> None:
    asleep = slots.start(Call("tests.runtime.functions.sleeps:run", {"seconds_asleep": 60}, stall=2))
    busy = slots.start(Call("tests.runtime.functions.works:run", {"seconds": 5}, stall=2))
    ended = {outcome.ticket: outcome for outcome in (slots.outcomes.get(timeout=60) for _ in range(2))}
    assert (ended[asleep].cause, ended[asleep].in_hand) == ("stall", "asleep")
    assert ended[busy].cause == "done"


def test_a_child_that_grew_is_replaced(slots: Slots) -> None:
    slots.start(call("keeps", bytes=150 * 2**20))
    first = slots.outcomes.get(timeout=60).result
    slots.start(call("echo"))
    second = slots.outcomes.get(timeout=60).result
    assert first is not None
    assert second is not None
    assert first["pid"] != second["pid"]


def test_most_memory_is_told_by_sort(slots: Slots) -> None:
    slots.start(call("keeps", bytes=64 * 2**20))
    outcome = slots.outcomes.get(timeout=60)
    assert set(outcome.peaks) == {"small", "large"}
    assert outcome.peaks["large"] - outcome.peaks["small"] > 60 * 2**20
    assert outcome.peak >= outcome.peaks["large"]


def test_a_child_at_rest_is_small(slots: Slots, tmp_path: Path) -> None:
    """After one unit of the product and after many: in all, and what it has for itself."""
    made = Slots(1, "blendex.units")
    others = set(psutil.Process().children())  # of servers that other tests have started
    for folder in ("staging", "objects"):
        (tmp_path / folder).mkdir()
    corpus(tmp_path / "data", shards=4, rows=30)
    files = sorted((tmp_path / "data").rglob("*.*"))
    kinds = {".json": "jsonl", ".tar": "nemo_tar"}
    sources = [[kinds[path.suffix], str(path), str(path)] for path in files if path.suffix in kinds]
    assert len(sources) == 8
    unit = {"root": str(tmp_path), "roots": ["/"], "attempt": "a.1-1", "compat": "", "sources": sources}

    def work(units: int) -> psutil.Process:
        for _ in range(units):
            made.start(Call("blendex.units.index:run", unit, memory=200 * 2**20))
            outcome = made.outcomes.get(timeout=60)
            assert outcome.cause == "done"
            assert outcome.result is not None
            assert len(outcome.result["entries"]) == 8
        (child,) = [item for item in {*psutil.Process().children()} - others if "blendex.units" in item.cmdline()]
        return child

    try:
        first = work(1)
        for child in (first, work(50)):
            assert child == first
            for _ in range(600):  # it rests when nothing has come for a while
                if child.memory_info().rss < 30_000_000:
                    break
                time.sleep(0.05)
            print(child.memory_full_info())
            assert child.memory_info().rss < 30_000_000
            assert child.memory_full_info().uss < 20_000_000
        kept = [os.readlink(f"/proc/{first.pid}/fd/{name}") for name in os.listdir(f"/proc/{first.pid}/fd")]
        # Its pipes, its log, which is 1 and 2, and what it has in hand.
        words = ["log" if name.endswith("(deleted)") and "memfd" not in name else name.split(":")[0] for name in kept]
        assert sorted(words) == ["/memfd", "log", "log", "pipe", "pipe"]
        assert made.used() < admission.REST_BYTES
        assert made.idle() == 1
    finally:
        made.close()


def test_what_was_freed_between_is_given_back(slots: Slots) -> None:
    """Small pieces, every other one still held: the allocator's own threshold sees only what is free at its end."""
    slots.start(call("scatters", bytes=64 * 2**20))
    outcome = slots.outcomes.get(timeout=60)
    assert outcome.peak > 64 * 2**20
    assert slots.used() < 40 * 2**20
    slots.start(call("echo"))
    second = slots.outcomes.get(timeout=60).result
    assert outcome.result is not None
    assert second is not None
    assert second["pid"] == outcome.result["pid"]


def test_reading_files_imports_nothing_of_what_reads_objects() -> None:
    code = (
        "import sys, blendex.runtime.child, blendex.units.index\n"
        "print(*sys.modules)"
    )  # fmt: skip
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "numpy" in told
    assert not {
        "blendex.storage.endpoint", "blendex.storage.objects", "concurrent.futures", "logging", "shutil", "statistics",
        "ssl", "socket", "subprocess", "multiprocessing", "sqlalchemy", "pydantic", "boto3", "aistore",
    } & set(told)  # fmt: skip


def test_the_end_of_its_pipe_ends_a_child_in_mid_call() -> None:
    memory = InHand.create()
    hand = InHand(memory)
    child = subprocess.Popen(
        [sys.executable, "-m", "blendex.runtime.child", "tests.runtime.functions", str(os.getpid()), str(memory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(memory,),
    )  # fmt: skip
    os.close(memory)
    assert child.stdin is not None
    assert child.stdout is not None
    message = {"function": "tests.runtime.functions.sleeps:run", "arguments": {"seconds_asleep": 60}}
    child.stdin.write(frames.encode(message))
    child.stdin.flush()
    while not hand.read():
        time.sleep(0.01)
    child.stdin.close()
    assert child.wait(timeout=20) == 0
    child.stdout.close()
    hand.close()


def test_a_killed_child_costs_its_own_call_only(slots: Slots) -> None:
    asleep = slots.start(call("sleeps", seconds_asleep=30))
    slots.start(call("echo"))
    assert slots.outcomes.get(timeout=30).cause == "done"
    while not slots.holding(asleep):
        time.sleep(0.01)
    for process in children():
        process.send_signal(signal.SIGKILL)
    outcome = slots.outcomes.get(timeout=30)
    assert (outcome.cause, outcome.how, outcome.in_hand) == ("signal", "SIGKILL", "asleep")
    assert "SIGKILL" in outcome.log
    slots.start(call("echo"))
    assert slots.outcomes.get(timeout=30).cause == "done"


def test_a_child_that_dies_as_it_is_given_a_call_is_not_the_calls_death(slots: Slots) -> None:
    """A kill takes a while: the process is there when it is asked, and gone before it reads."""
    slots.start(call("echo"))
    assert slots.outcomes.get(timeout=30).cause == "done"
    (child,) = children()
    child.send_signal(signal.SIGSTOP)  # so that it cannot read the call
    slots.start(call("echo", value="again"))
    while slots._idle:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    outcome = slots.outcomes.get(timeout=30)
    assert outcome.cause == "done"
    assert outcome.result is not None
    assert outcome.result["value"] == "again"


def test_a_deadline_ends_a_call(slots: Slots) -> None:
    started = time.monotonic()
    slots.start(call("sleeps", seconds=0.5, seconds_asleep=60))
    assert slots.outcomes.get(timeout=30).cause == "timeout"
    assert time.monotonic() - started < 20


def test_cancel_and_shutdown_are_told_apart() -> None:
    slots = Slots(2, "tests.runtime.functions")
    first = slots.start(call("sleeps", seconds_asleep=60))
    slots.start(call("sleeps", seconds_asleep=60))
    slots.cancel(first)
    assert slots.outcomes.get(timeout=30).cause == "cancelled"
    slots.close()
    assert slots.outcomes.get(timeout=30).cause == "shutdown"


def test_calls_wait_for_a_slot_without_blocking_the_caller(slots: Slots) -> None:
    for _ in range(2):
        slots.start(call("sleeps", seconds_asleep=0.2))
    assert slots.free() == 0
    for _ in range(2):
        slots.outcomes.get(timeout=30)
    assert slots.free() == 2


def test_large_messages_go_both_ways(slots: Slots) -> None:
    value = "x" * (8 << 20)
    slots.start(call("echo", value=value))
    result = slots.outcomes.get(timeout=60).result
    assert result is not None
    assert result["value"] == value


def test_children_see_no_secrets_of_the_parent(slots: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLENDEX_DATABASE_URL", "postgresql://user:secret@host/db")
    slots.start(call("environment"))
    result = slots.outcomes.get(timeout=30).result
    assert result is not None
    assert not [name for name in result["names"] if name.startswith("BLENDEX")]


def test_children_die_with_their_parent(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from blendex.runtime.slots import Call, Slots\n"
        "slots = Slots(1, 'tests.runtime.functions')\n"
        "slots.start(Call('tests.runtime.functions.sleeps:run', {'seconds_asleep': 60}))\n"
        "import psutil\n"
        "while not psutil.Process().children(): time.sleep(0.01)\n"
        "print(psutil.Process().children()[0].pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    child.wait(timeout=10)
    assert not child.is_running()


def test_a_child_that_cannot_be_started_costs_its_call_only(slots: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    from blendex.runtime import slots as module

    def fails(_: str) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    real = module._Process
    monkeypatch.setattr(module, "_Process", fails)
    slots.start(call("echo"))
    outcome = slots.outcomes.get(timeout=30)
    assert (outcome.cause, "temporarily unavailable" in outcome.log) == ("unstarted", True)
    monkeypatch.setattr(module, "_Process", real)
    slots.start(call("echo"))
    assert slots.outcomes.get(timeout=30).cause == "done"
