"""Settings of a Blendex process: one frozen object, read from ``BLENDEX_*`` variables and the command line."""

from __future__ import annotations

import ipaddress
import os
import re
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


def _networks(value: tuple[str, ...]) -> tuple[str, ...]:
    for item in value:
        ipaddress.ip_network(item)  # a ValueError says what is wrong
    return value


class ProxySettings(BaseModel):
    """Proxies that ask people who they are, and say so in headers. Nobody else's headers are believed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    networks: tuple[str, ...] = Field(min_length=1, description="Where they connect from, as `10.0.3.0/24`.")
    user_header: str = Field("X-Forwarded-User", description="The header that names the person.")
    team_header: str = Field("X-Forwarded-Team", description="The header that names their team.")
    scope: Literal["lookup", "read", "build"] = Field("build", description="What they may do.")

    @field_validator("networks")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return _networks(value)


class NotifySettings(BaseModel):
    """One receiver of notices. Its secret may be written ``env:NAME`` or ``file:/path``: it is read from there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: SecretStr = Field(description="Where notices are posted to. Not shown: addresses of chats are secrets.")
    template: Literal["json", "slack", "text"] = Field("json", description="What is sent.")
    secret: SecretStr | None = Field(None, description="Key of the signature; unset: none is sent.")
    hosts: tuple[str, ...] = Field((), description="Patterns of which the host of the URL must match one.")
    private: bool = Field(False, description="Whether its address may be a private one.")
    events: tuple[Literal["ready", "failed", "excluded"], ...] = Field(
        ("ready", "failed", "excluded"), description="What it is told of."
    )
    teams: tuple[str, ...] = Field((), description="Teams that may name it; empty: all.")


class QuotaSettings(BaseModel):
    """What one team may have; unset: any number."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    running_builds: int | None = Field(None, ge=0, description="Builds that run at one time.")
    running_sources: int | None = Field(None, ge=0, description="Sources in builds that run.")
    build_sources: int | None = Field(None, ge=0, description="Sources of one build.")
    bytes_per_day: int | None = Field(None, ge=0, description="Bytes read for builds of the last 24 hours.")
    mirror_bytes: int | None = Field(None, ge=0, description="Its part of the bytes of mirrors that its builds hold.")
    mirror_files: int | None = Field(None, ge=0, description="Its part of their files.")


class Settings(BaseSettings):
    """What a process may be told. Every field is in ``docs/reference/settings.md``."""

    model_config = SettingsConfigDict(env_prefix="BLENDEX_", extra="forbid", frozen=True)

    root: Path = Field(Path("blendex-data"), description="The folder of mirrors, bundles and receipts.")
    root_group: str | None = Field(
        None,
        description="A group of the system: only its members, and its owner, come below the root. Unset: everybody.",
    )
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
    notify: dict[str, NotifySettings] = Field(
        default_factory=dict,
        description="Receivers of notices by name, as JSON; see `operate.md`.",
    )
    quotas: dict[str, QuotaSettings] = Field(
        default_factory=dict,
        description="Quotas of teams by name, as JSON; `*` is for those that are not named. See `operate.md`.",
    )
    lookups_per_second: float = Field(
        0.0, ge=0, description="Look-ups of paths that one caller may make, of one api process; 0: any number."
    )
    reads_per_second: float = Field(0.0, ge=0, description="Other reads that one caller may make; 0: any number.")
    writes_per_second: float = Field(0.0, ge=0, description="Changes that one caller may ask for; 0: any number.")
    owner: str = Field("local", description="Who submissions belong to while nobody is asked who they are.")
    auth: Literal["none", "tokens"] = Field(
        "none", description="`tokens`: whoever asks must say who they are. `none`: whoever reaches the API may do all."
    )
    anonymous_lookup: tuple[str, ...] = Field(
        ("127.0.0.0/8", "::1/128"),
        description="Networks from which anybody may ask for the path of a mirror without a token.",
    )
    proxy: ProxySettings | None = Field(
        None, description="Proxies whose headers say who asks, as JSON; see `security.md`."
    )
    session_hours: float = Field(12.0, gt=0, description="How long a log-in of the dashboard lasts.")
    public_url: str | None = Field(
        None,
        description="Where people reach the service, https://…: used in links and snippets. Unset: where it listens.",
    )
    slots: int = Field(
        default_factory=lambda: max(1, len(os.sched_getaffinity(0))),
        ge=1,
        le=256,
        description="Child processes that work at one time.",
    )
    unit_memory_mb: int = Field(512, ge=64, description="Memory limit of one child, in MiB.")
    unit_bytes: int = Field(256 * 2**20, ge=1, description="Predicted bytes read by one index unit, about.")
    unit_sources: int = Field(
        2_048, ge=1, description="Most sources in one index unit; half of it where a build had more than 16 such units."
    )
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
    traces: Literal["off", "otlp"] = Field(
        "off", description="Where traces go; otlp: by the variables `OTEL_EXPORTER_OTLP_…`. Needs the extra telemetry."
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
    job_hold_days: float = Field(
        14.0, gt=0, description="How long a job may hold a mirror; one that tells no end holds it so long."
    )
    chain_hold_days: float = Field(
        42.0, gt=0, description="How long a chain of jobs holds a mirror from each of its look-ups on."
    )
    unused_hours: float = Field(
        24.0, gt=0, description="A look-up that takes no hold keeps a mirror for so long; then it may be condemned."
    )
    condemned_days: float = Field(
        7.0, ge=0, description="How long a mirror that nobody holds is condemned, and still served, before it may go."
    )
    collect_hours: float | None = Field(
        None, gt=0, description="How often workers collect what nobody holds; unset: only `blendex collect` does."
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

    @field_validator("anonymous_lookup")
    @classmethod
    def _ranges(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return _networks(value)

    @field_validator("public_url")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?", value):
            raise ValueError("public_url is http:// or https://, a host, and at most a path")
        return value.rstrip("/") if value is not None else None

    @field_validator("root", "state_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return Path(os.path.abspath(value.expanduser()))

    @field_validator("allowed_roots")
    @classmethod
    def _real(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(os.path.realpath(os.path.expanduser(item)) for item in value)


def settings_for(root: Path | None) -> Settings:
    """The settings of this process, with the root of its command line when one was given."""
    return Settings() if root is None else Settings(root=root)
