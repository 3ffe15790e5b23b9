"""Settings of a Blendex process: one frozen object, read from ``BLENDEX_*`` variables and the command line."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


def _state_home() -> Path:
    """Where a user's programs keep their state. A user id without an account, as in containers, has no home."""
    given = os.environ.get("XDG_STATE_HOME")
    if given is None and os.path.expanduser("~") == "~":
        return Path(tempfile.gettempdir())
    return Path(os.path.expanduser(given or "~/.local/state"))


class StoreSettings(BaseModel):
    """One endpoint profile. A secret may be written ``env:NAME`` or ``file:/path``: it is read from there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["s3", "aistore", "http"] = Field(description="What answers there.")
    endpoint: str | None = Field(None, description="Its URL; for AIStore the proxy; for S3 unset: Amazon's own.")
    schemes: tuple[str, ...] = Field(
        (),
        description="URLs it answers for: `s3` for S3; for AIStore `ais`, `s3`, `gs`, `az`, `oci`. Empty: all these.",
    )
    buckets: tuple[str, ...] = Field((), description="Patterns of the buckets that may be read, as `speech-*`.")
    prefixes: tuple[str, ...] = Field(
        (),
        description="Of kind `http`, instead of endpoint and buckets: what URLs that may be read begin with, each "
        "ending in a slash. Redirects are followed inside these only.",
    )
    networks: tuple[str, ...] = Field(
        (),
        description="Of kind `http`: networks besides the public ones in which hosts may lie, as `10.1.0.0/16`.",
    )
    region: str | None = Field(None, description="Region of S3.")
    addressing: Literal["auto", "path", "virtual"] = Field("auto", description="How S3 buckets are named in requests.")
    anonymous: bool = Field(False, description="Send S3 requests unsigned.")
    access_key: SecretStr | None = Field(None, description="S3 key id; unset: boto3's own chain of credentials.")
    secret_key: SecretStr | None = Field(None, description="S3 secret.")
    session_token: SecretStr | None = Field(None, description="S3 session token.")
    token: SecretStr | None = Field(None, description="AIStore's AuthN token, or a web server's bearer token.")
    ca: str | None = Field(None, description="File of the certificate authority.")
    client_cert: str | None = Field(None, description="File of a client certificate (AIStore, http).")
    client_key: str | None = Field(None, description="File of its key.")
    verify: bool = Field(True, description="Check the server's certificate.")
    parallel: int = Field(16, ge=1, le=256, description="Most requests at a time from one child.")
    connect_seconds: float = Field(3.0, gt=0, description="How long a connection may take.")
    read_seconds: float = Field(20.0, gt=0, description="How long a connection may bring nothing.")
    patience_seconds: float = Field(60.0, gt=0, description="How long one request is tried in all.")
    mode: Literal["auto", "batch", "individual"] | None = Field(
        None,
        description="How whole objects come from AIStore; unset: by `AIS_MODE` or training's `USE_AIS_…`, else auto.",
    )
    trust_size: bool = Field(
        False, description="An object without version and checksum is unchanged while its size is."
    )
    local_mirrors: tuple[str, ...] = Field(
        (), description="Folders `<bucket>/<key>` to look into first, as training's `LHOTSE_S3_LOCAL_MIRROR_ROOTS`."
    )


class Settings(BaseSettings):
    """What a process may be told. Every field is in ``docs/reference/settings.md``."""

    model_config = SettingsConfigDict(env_prefix="BLENDEX_", extra="forbid", frozen=True)

    root: Path = Field(Path("blendex-data"), description="The folder of mirrors, bundles and receipts.")
    database_url: str | None = Field(
        None,
        description="SQLAlchemy URL of the catalog; unset: SQLite inside the root, or in a local state folder.",
    )
    migrate: bool = Field(
        True,
        description="Migrate the catalog at the start. Off: wait for `blendex migrate`, run by somebody else.",
    )
    broker_url: SecretStr | None = Field(
        None, description="Redis of the workers, redis://…; unset: the embedded form, workers in the process itself."
    )
    allowed_roots: tuple[str, ...] = Field(
        (), description="Folders the service may read sources in. Empty: the folder it was started in."
    )
    stores: dict[str, StoreSettings] = Field(
        default_factory=dict,
        description="Endpoint profiles of object stores by name, as JSON; see `stores.md`.",
    )
    stores_file: Path | None = Field(None, description="A YAML file with more of them, by name.")
    owner: str = Field("local", description="Who submissions belong to while there are no accounts.")
    slots: int = Field(
        default_factory=lambda: max(1, len(os.sched_getaffinity(0))),
        ge=1,
        le=256,
        description="Child processes that work at one time.",
    )
    unit_memory_mb: int = Field(512, ge=64, description="Memory limit of one child, in MiB.")
    unit_bytes: int = Field(256 * 2**20, ge=1, description="Predicted bytes read by one index unit, about.")
    unit_sources: int = Field(512, ge=1, description="Most sources in one index unit.")
    pack_sources: int = Field(64, ge=1, description="Fewest sources of a dataset that gets a pack by itself.")
    unit_seconds: float = Field(6 * 3600.0, gt=0, description="Deadline of one unit, in seconds.")
    lease_seconds: float = Field(30.0, gt=0, description="How long a claim is good without a renewal.")
    store_patience: float = Field(
        300.0, ge=0, description="Pauses in which work waits for a store that is away, in seconds, before it is named."
    )
    plan_patience: float | None = Field(
        None, ge=0, description="The same for plans; unset: as `store_patience`, on a command line 60 at most."
    )
    poll_seconds: float = Field(1.0, gt=0, description="How often an idle worker looks for work.")
    classes: tuple[str, ...] = Field(("plan", "index", "pack", "publish"), description="Work that a worker claims.")
    budget_mb: int | None = Field(
        None, ge=64, description="Memory of a worker's children together, in MiB; unset: what the cgroup or host has."
    )
    reserve_seconds: float = Field(
        60.0, gt=0, description="How long a heavy unit waits for memory before nothing else is begun on its host."
    )
    stall_seconds: float = Field(
        300.0, ge=0, description="A child that reads no byte, and computes nothing, is ended after this; 0: never."
    )
    drain_seconds: float = Field(
        25.0, ge=0, description="How long a worker that is told to end lets units end before it hands them back."
    )
    metrics_port: int | None = Field(
        None, ge=0, le=65535, description="Port of a worker's /metrics; unset: none. The API serves its own."
    )
    log_format: Literal["auto", "json", "text"] = Field("auto", description="auto: text on a terminal, else JSON.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="The least level logged.")
    stat_threads: int = Field(8, ge=1, le=128, description="Threads that stat sources while planning.")
    max_running_builds: int = Field(
        1_000, ge=1, description="Builds that have not ended, above which a new one is answered with 429."
    )
    max_waiting_units: int = Field(
        1_000_000, ge=1, description="Units that wait, above which a new build is answered with 429."
    )
    max_root_files: int | None = Field(
        None, ge=1, description="Files that objects and mirrors may be, by the catalog's count; unset: any number."
    )
    max_root_bytes: int | None = Field(
        None,
        ge=1,
        description="Bytes that objects and mirrors may have, by the catalog's count; unset: any number.",
    )
    max_submission_bytes: int = Field(64 * 2**20, ge=1024, description="Largest body of a submission.")
    max_sources: int = Field(2_000_000, ge=1, description="Most sources one blend may name.")
    state_dir: Path = Field(
        default_factory=lambda: _state_home() / "blendex",
        description="Where SQLite goes when the root is on a network filesystem.",
    )

    @field_validator("classes")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or (unknown := set(value) - {"plan", "index", "pack", "publish"}):
            raise ValueError(f"classes of work are plan, index and publish, not {sorted(unknown) if value else 'none'}")
        return value

    @field_validator("root", "state_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return Path(os.path.abspath(value.expanduser()))

    @field_validator("allowed_roots")
    @classmethod
    def _real(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(os.path.realpath(os.path.expanduser(item)) for item in value)
