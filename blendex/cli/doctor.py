"""``blendex doctor``: looks at everything a deployment stands on, and says of each what to do.

A kind of thing to look at is one function from what is known of the deployment to diagnoses, entered in ``KINDS``.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blendex.blend.urls import parts
from blendex.builds.profiles import profiles_for
from blendex.catalog import health
from blendex.catalog.dialect import open_engine
from blendex.catalog.engine import default_url
from blendex.errors import BlendexError, Code
from blendex.observability.diagnosis import Diagnosis, Verdict
from blendex.settings import Settings, settings_for
from blendex.storage import probe, rootcheck, secondhost

WAIT_SECONDS = 120.0
STA_UNSYNC = 0x0040  # linux/timex.h
_VERDICTS: dict[bool | None, Verdict] = {True: "ok", False: "wrong", None: "skipped"}


@dataclass(frozen=True, slots=True)
class Patient:
    """What is looked at.

    Args:
        settings: of this process.
        code: the code of another machine that waits for this one; None: no other machine waits.
        second_host: wait for another machine.
        urls: objects or prefixes to look at in object stores.
    """

    settings: Settings
    code: str | None = None
    second_host: bool = False
    urls: Sequence[str] = ()

    def root_id(self) -> str | None:
        """The id in the root, when it has one; looking must not make one."""
        try:
            return Path(self.settings.root, "catalog-id").read_text().strip()
        except OSError:
            return None


def root(patient: Patient) -> Iterator[Diagnosis]:
    """The folder of mirrors, and whether another machine sees it alike."""
    path = str(patient.settings.root)
    yield from rootcheck.check(path)
    if patient.code is not None:
        yield from secondhost.answer(path, patient.code, WAIT_SECONDS)
    elif patient.second_host:
        yield from secondhost.ask(path, WAIT_SECONDS, lambda code: _tell(path, code))
    else:
        yield Diagnosis(
            "visible", "skipped", "no other machine was asked.", "blendex doctor --second-host asks one, and says how."
        )


def database(patient: Patient) -> Iterator[Diagnosis]:
    """The catalog."""
    settings = patient.settings
    url = settings.database_url
    if url is None and os.path.isdir(settings.root):
        url = default_url(str(settings.root), settings.state_dir)[0]
    if url is None or (url.startswith("sqlite:///") and not os.path.exists(url.removeprefix("sqlite:///"))):
        yield Diagnosis("connect", "ok", "there is none yet: the first build makes a SQLite file.")
        return
    engine = open_engine(url, "blendex doctor")
    try:
        yield from health.check(engine, str(settings.root) if patient.root_id() else None)
    finally:
        engine.dispose()


def queue(patient: Patient) -> Iterable[Diagnosis]:
    """The broker."""
    broker = patient.settings.broker_url
    if broker is None:
        return [Diagnosis("connect", "skipped", "BLENDEX_BROKER_URL is unset: work is done without one.")]
    try:
        from workers import health as broker_health
    except ModuleNotFoundError as error:
        return [
            Diagnosis("connect", "wrong", f"{error.name} is not installed.", "pip install 'blendex[workers,postgres]'")
        ]
    return broker_health.check(broker.get_secret_value(), patient.root_id())


def clock(_patient: Patient) -> Iterator[Diagnosis]:
    """Whether the kernel says that somebody keeps this machine's clock right."""
    libc = ctypes.CDLL(None, use_errno=True)
    state = (ctypes.c_int * 64)()  # struct timex, 208 bytes; modes 0 asks; status is the int after four longs and pad
    if libc.adjtimex(state) < 0:
        yield Diagnosis("ntp", "skipped", "the kernel does not tell whether the clock is kept.")
    elif state[10] & STA_UNSYNC:
        yield Diagnosis(
            "ntp", "warning", "nobody keeps this machine's clock.", "Run NTP (chrony, systemd-timesyncd) on the host."
        )
    else:
        yield Diagnosis("ntp", "ok", "the kernel says that the clock is kept.")


def stores(patient: Patient) -> Iterator[Diagnosis]:
    """Every endpoint profile of object stores, and whether some profile serves each URL.

    Raises:
        BlendexError: bad_request for what is no URL of an object store; what the settings are wrong in.
    """
    wanted = []
    for url in patient.urls:
        found = parts(url)
        if found is None:
            raise BlendexError(
                Code.BAD_REQUEST, f"{url} is no URL of an object store.", next_step="Write it like s3://bucket/prefix."
            )
        wanted.append(found)
    profiles = profiles_for(patient.settings, own=True)
    if not profiles:
        yield Diagnosis("profiles", "skipped", "there are no endpoint profiles: sources are files (docs/stores.md).")
    for profile in profiles:
        mine = [item for item in wanted if profile.serves(*item)]
        for check in probe.examine(profile, mine):
            yield Diagnosis(check.name, _VERDICTS[check.ok], f"{profile.name}: {check.detail}", check.next_step)
    for scheme, bucket, key in wanted:
        if not any(profile.serves(scheme, bucket, key) for profile in profiles):
            yield Diagnosis(
                "auth", "wrong", f"no endpoint profile serves {scheme}://{bucket}.",
                "Add its bucket or prefix to a profile; see docs/stores.md.",
            )  # fmt: skip


def access(patient: Patient) -> Iterator[Diagnosis]:
    """Whether anybody is asked who they are."""
    settings = patient.settings
    if settings.auth == "none":
        yield Diagnosis(
            "auth", "skipped", "BLENDEX_AUTH is none: whoever reaches the API may do everything.",
            "Listen on loopback only, or set BLENDEX_AUTH=tokens; see docs/security.md.",
        )  # fmt: skip
        return
    if settings.public_url is None:
        yield Diagnosis(
            "public_url", "warning", "links and snippets name where the process listens.", "Set BLENDEX_PUBLIC_URL."
        )
    yield Diagnosis("auth", "ok", "whoever asks must say who they are.")


KINDS: dict[str, Callable[[Patient], Iterable[Diagnosis]]] = {
    "root": root,
    "database": database,
    "queue": queue,
    "clock": clock,
    "stores": stores,
    "access": access,
}


def examine(
    root: Path | None, code: str | None, second_host: bool, urls: Sequence[str] = ()
) -> list[tuple[str, Diagnosis]]:
    """Every diagnosis of every kind."""
    patient = Patient(settings_for(root), code, second_host, urls)
    return [(kind, item) for kind, look in KINDS.items() for item in look(patient)]


def as_dict(found: list[tuple[str, Diagnosis]]) -> dict[str, Any]:
    """The JSON form."""
    return {
        "healthy": not any(item.verdict == "wrong" for _, item in found),
        "checks": [
            {"kind": kind, "check": item.check, "verdict": item.verdict, "says": item.says, "do": item.do}
            for kind, item in found
        ],
    }


def lines(found: list[tuple[str, Diagnosis]]) -> Iterator[str]:
    """The form for people."""
    for kind, item in found:
        yield f"{item.verdict:<8} {kind:<9} {item.check:<10} {item.says}"
        if item.do:
            yield f"{'':<29} -> {item.do}"


def _tell(path: str, code: str) -> None:
    sys.stderr.write(f"On another machine, within two minutes:\n  blendex doctor --root {path} --from-node {code}\n")
    sys.stderr.flush()
