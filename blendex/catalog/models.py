"""Tables. Portable between SQLite and PostgreSQL; times are seconds since the epoch, by the database's clock.

The catalog grows with distinct (source, content), not with builds: what a build or a mirror is made of is a list
per dataset, stored once as a compressed blob under its hash.

All tables are in one file, since the schema is read as one: rooms refer to each other by foreign keys, and migrations
are held against all of it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# Row ids are 64-bit; SQLite makes an alias of the rowid only of a column declared INTEGER.
RowId = BigInteger().with_variant(Integer, "sqlite")
RUNNING = ("queued", "planning", "indexing", "packing", "publishing")


class Base(DeclarativeBase):
    """All tables, with constraint names that migrations can rely on."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {dict[str, Any]: JSON, list[Any]: JSON}  # noqa: RUF012 -- SQLAlchemy's protocol


class Meta(Base):
    """Facts about this database itself, such as the catalog id that ties it to a root."""

    __tablename__ = "meta"
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(String(256))


class Blob(Base):
    """Something large, stored once under the SHA-256 of its plain bytes; ``data`` is zstd-compressed."""

    __tablename__ = "blobs"
    hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    data: Mapped[bytes] = mapped_column(LargeBinary)


class Build(Base):
    """One request for a mirror and a ready blend."""

    __tablename__ = "builds"
    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    owner: Mapped[str] = mapped_column(String(128))
    # Empty: the owner stands for a team of one
    team: Mapped[str] = mapped_column(String(128), server_default="", default="")
    identity: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))
    fence: Mapped[int] = mapped_column(Integer, default=0)
    version: Mapped[int] = mapped_column(Integer, default=0)
    priority: Mapped[int] = mapped_column(Integer, default=0)
    # None for a build that was adopted from its folder after the catalog was lost
    submission: Mapped[str | None] = mapped_column(String(64), ForeignKey("blobs.hash"))
    file: Mapped[str] = mapped_column(String(4096))
    options: Mapped[dict[str, Any]] = mapped_column(JSON)
    names: Mapped[list[Any]] = mapped_column(JSON, default=list)
    labels: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict, server_default="{}")
    created_at: Mapped[float] = mapped_column(Float)
    updated_at: Mapped[float] = mapped_column(Float)
    stages: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    plan: Mapped[str | None] = mapped_column(String(64), ForeignKey("blobs.hash"))
    problems: Mapped[str | None] = mapped_column(String(64), ForeignKey("blobs.hash"))
    replans: Mapped[int] = mapped_column(Integer, default=0)
    sources: Mapped[int] = mapped_column(Integer, default=0)
    reused: Mapped[int] = mapped_column(Integer, default=0)
    bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    opened: Mapped[int] = mapped_column(Integer, default=0)
    read_bytes: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")  # that units read for it
    error: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    excluded: Mapped[list[Any]] = mapped_column(JSON, default=list)
    # A dataset each: its pack, or why it has none; None until it is ready
    packs: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
    mirror: Mapped[str | None] = mapped_column(String(64))
    checked_at: Mapped[float | None] = mapped_column(Float)
    # What became of its units, kept when it ended and they went
    trace: Mapped[str | None] = mapped_column(String(64))
    # The failed sources that its next plan reads again; None: all of them
    again: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
    # Receivers that shall be told what becomes of it
    notify: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
    # Recipes that its plan was made in, as units name them
    recipes: Mapped[str | None] = mapped_column(String(400))
    traceparent: Mapped[str | None] = mapped_column(String(64))  # of the request that posted it

    __table_args__ = (
        # Same identity while one runs: the same build. The database decides who was first.
        Index(
            "uq_builds_running_identity",
            "identity",
            unique=True,
            sqlite_where=text(f"state IN {RUNNING}"),
            postgresql_where=text(f"state IN {RUNNING}"),
        ),
        Index("ix_builds_state", "state"),
    )


class BuildDataset(Base):
    """One dataset of a build: its place in the blend and the list of its sources."""

    __tablename__ = "build_datasets"
    build: Mapped[str] = mapped_column(String(26), ForeignKey("builds.id"), primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(String(256))
    type: Mapped[str] = mapped_column(String(128))
    list_hash: Mapped[str] = mapped_column(String(64), ForeignKey("blobs.hash"))
    sources: Mapped[int] = mapped_column(Integer)
    weight: Mapped[float | None] = mapped_column(Float)  # of its entry, when that is a number
    # Known when it is published
    records: Mapped[int | None] = mapped_column(BigInteger)
    bytes: Mapped[int | None] = mapped_column(BigInteger)
    share: Mapped[float | None] = mapped_column(Float)  # of what training draws, its siblings' weights considered
    seconds: Mapped[float | None] = mapped_column(Float)  # of audio, by its manifests
    access: Mapped[str | None] = mapped_column(String(16))  # how training can fetch its audio


class Source(Base):
    """The last that is known of one address under one recipe: token, and the content it stood for."""

    __tablename__ = "sources"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    address: Mapped[str] = mapped_column(String(4096))
    recipe: Mapped[str] = mapped_column(String(64))
    token: Mapped[str] = mapped_column(String(256))
    racy: Mapped[bool] = mapped_column(Boolean)
    # Of the row that its writer has just found or made; rows of contents stay for ever. As a foreign key it would be
    # looked up, and locked, once more for each source.
    content: Mapped[int | None] = mapped_column(RowId)
    error: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    # Where a sidecar for this source was first written, to be linked from; path is its place there.
    mirror: Mapped[int | None] = mapped_column(RowId)
    path: Mapped[str | None] = mapped_column(String(4096))
    seen_at: Mapped[float | None] = mapped_column(Float)  # when this content was read here first
    read_at: Mapped[float | None] = mapped_column(Float)  # and last
    changes: Mapped[int] = mapped_column(Integer, default=0, server_default="0")

    __table_args__ = (UniqueConstraint("address", "recipe"),)


class FormerContent(Base):
    """What a source held before it held what it holds now. A ring: its last few changes, and no more."""

    __tablename__ = "former_contents"
    address: Mapped[str] = mapped_column(String(4096), primary_key=True)
    recipe: Mapped[str] = mapped_column(String(64), primary_key=True)
    slot: Mapped[int] = mapped_column(Integer, primary_key=True)
    token: Mapped[str] = mapped_column(String(256))
    strength: Mapped[str] = mapped_column(String(16))
    hash: Mapped[bytes] = mapped_column(LargeBinary(32))
    size: Mapped[int] = mapped_column(BigInteger)
    records: Mapped[int] = mapped_column(BigInteger)
    seen_at: Mapped[float | None] = mapped_column(Float)
    read_at: Mapped[float | None] = mapped_column(Float)


class Content(Base):
    """The sidecar of one content under one recipe, wherever that content lies."""

    __tablename__ = "contents"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    recipe: Mapped[str] = mapped_column(String(64))
    strength: Mapped[str] = mapped_column(String(16))
    hash: Mapped[bytes] = mapped_column(LargeBinary(32))
    size: Mapped[int] = mapped_column(BigInteger)
    records: Mapped[int] = mapped_column(BigInteger)
    object: Mapped[int] = mapped_column(RowId)  # whose row its writer has locked; one that is not there is lost
    offset: Mapped[int] = mapped_column(BigInteger)
    length: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[bytes] = mapped_column(LargeBinary(32))
    findings: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
    # 0: nothing; 1: the object also says what the records are called; 2: and that some are no JSON objects
    learned: Mapped[int] = mapped_column(Integer, default=0, server_default="0")
    # CRC-32 of the sidecar: a pack holds the same one, so that what is copied into it is proven on the way
    crc: Mapped[int | None] = mapped_column(BigInteger)
    seconds: Mapped[float | None] = mapped_column(Float)  # of audio that its rows tell of, where all were decoded

    __table_args__ = (UniqueConstraint("hash", "recipe", "strength"),)


class Pack(Base):
    """What came of packing some collections with some contents, under a digest of both."""

    __tablename__ = "packs"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    object: Mapped[int | None] = mapped_column(RowId, ForeignKey("objects.id"))
    layout_hash: Mapped[str | None] = mapped_column(String(64))
    counts: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    error: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))


class Object(Base):
    """One file under ``objects/``."""

    __tablename__ = "objects"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    name: Mapped[str] = mapped_column(String(80), unique=True)
    size: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(8), default="live")  # live, dying, lost
    created_at: Mapped[float] = mapped_column(Float)
    dying_at: Mapped[float | None] = mapped_column(Float)  # since when nothing refers to it


class Unit(Base):
    """The smallest thing a worker claims. It belongs to the catalog; builds subscribe to it."""

    __tablename__ = "units"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    work: Mapped[str] = mapped_column(String(16))
    build: Mapped[str] = mapped_column(String(26))  # who asked first; the only subscriber of plan and publish
    state: Mapped[str] = mapped_column(String(8))
    fence: Mapped[int] = mapped_column(Integer, default=0)
    worker: Mapped[str | None] = mapped_column(String(128))
    lease_until: Mapped[float | None] = mapped_column(Float)
    leased_at: Mapped[float | None] = mapped_column(Float)
    ended_at: Mapped[float | None] = mapped_column(Float)
    attempts: Mapped[int] = mapped_column(Integer, default=0)  # deaths that its sources may be to blame for
    losses: Mapped[int] = mapped_column(Integer, default=0, server_default="0")  # leases that ran out
    delays: Mapped[int] = mapped_column(Integer, default=0, server_default="0")  # times that a store was away
    not_before: Mapped[float | None] = mapped_column(Float)  # waiting, but not until then
    priority: Mapped[int] = mapped_column(Integer, default=0)
    cost: Mapped[int] = mapped_column(BigInteger, default=0)
    # Not read any more: kept while processes that write it may still run. Turns are taken by lanes.
    turn: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    memory: Mapped[int] = mapped_column(BigInteger)
    payload: Mapped[bytes] = mapped_column(LargeBinary)
    error: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    waiting_since: Mapped[float | None] = mapped_column(Float)
    # Recipes that whoever does it must have, with commas between; None: made before units named them
    needs: Mapped[str | None] = mapped_column(String(400))
    traceparent: Mapped[str | None] = mapped_column(String(64))  # of what made it

    __table_args__ = (
        Index("ix_units_lane", "state", "build", "priority", "memory"),
        Index("ix_units_order", "state", "build", "priority", "cost", "id"),
        Index("ix_units_heavy", "state", "memory"),
        Index("ix_units_lease", "state", "lease_until"),
    )


class Pending(Base):
    """A source that some unit is about to read: whoever else needs it subscribes to that unit."""

    __tablename__ = "pending"
    address: Mapped[str] = mapped_column(String(4096), primary_key=True)
    recipe: Mapped[str] = mapped_column(String(64), primary_key=True)
    unit: Mapped[int] = mapped_column(RowId, ForeignKey("units.id"), index=True)


class Subscription(Base):
    """A build waits for a unit, for ``sources`` of what it reads."""

    __tablename__ = "subscriptions"
    # All that a page asks of them: in order of units, so that these are met in the order in which they lie.
    __table_args__ = (Index("ix_subscriptions_units", "build", "unit", "sources"),)
    unit: Mapped[int] = mapped_column(RowId, ForeignKey("units.id"), primary_key=True)
    build: Mapped[str] = mapped_column(String(26), ForeignKey("builds.id"), primary_key=True)
    sources: Mapped[int] = mapped_column(Integer)


class Mirror(Base):
    """One published mirror."""

    __tablename__ = "mirrors"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    key: Mapped[str] = mapped_column(String(64), unique=True)
    source_set: Mapped[str] = mapped_column(String(64), index=True)
    content: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(12), default="published")  # published, condemned, collecting, collected
    sources: Mapped[int] = mapped_column(Integer)
    records: Mapped[int] = mapped_column(BigInteger)
    bytes: Mapped[int] = mapped_column(BigInteger)
    sidecar_bytes: Mapped[int] = mapped_column(BigInteger)
    # Written for it, and not linked from another mirror.
    own_files: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    own_bytes: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    created_at: Mapped[float] = mapped_column(Float)
    used_at: Mapped[float] = mapped_column(Float)
    condemned_at: Mapped[float | None] = mapped_column(Float)
    # While it is collected: the only folder into which it may be renamed.
    grave: Mapped[str | None] = mapped_column(String(128))


class Hold(Base):
    """What keeps a mirror. Names keep theirs as well, and have no row here."""

    __tablename__ = "holds"
    mirror: Mapped[str] = mapped_column(String(64), primary_key=True)
    kind: Mapped[str] = mapped_column(String(8), primary_key=True)  # pin, job, chain, build (while that runs)
    team: Mapped[str] = mapped_column(String(128), primary_key=True)  # empty: without teams, and of builds
    holder: Mapped[str] = mapped_column(String(128), primary_key=True)
    since: Mapped[float] = mapped_column(Float)
    until: Mapped[float | None] = mapped_column(Float)
    reason: Mapped[str | None] = mapped_column(String(500))

    __table_args__ = (Index("ix_holds_holder", "kind", "holder"),)


class Verification(Base):
    """What came of reading a mirror whole, the last time that somebody asked for it."""

    __tablename__ = "verifications"
    mirror: Mapped[str] = mapped_column(String(64), primary_key=True)  # its key
    state: Mapped[str] = mapped_column(String(12))  # running, whole, damaged, failed
    with_sources: Mapped[bool] = mapped_column(Boolean)
    sources: Mapped[int] = mapped_column(BigInteger)
    faults: Mapped[list[Any]] = mapped_column(JSON)  # the first ones
    fault_count: Mapped[int] = mapped_column(BigInteger)
    changed: Mapped[list[Any]] = mapped_column(JSON)  # the first ones
    changed_count: Mapped[int] = mapped_column(BigInteger)
    error: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    began_at: Mapped[float] = mapped_column(Float)
    ended_at: Mapped[float | None] = mapped_column(Float)


class BuildEvent(Base):
    """A line in the log of a build."""

    __tablename__ = "build_events"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    build: Mapped[str] = mapped_column(String(26), index=True)
    at: Mapped[float] = mapped_column(Float)
    event: Mapped[str] = mapped_column(String(32))
    about: Mapped[dict[str, Any]] = mapped_column(JSON)


class Name(Base):
    """A movable label on builds."""

    __tablename__ = "names"
    name: Mapped[str] = mapped_column(String(128), primary_key=True)
    # Whose it is: the team that made it. Empty: of whoever works without accounts
    team: Mapped[str] = mapped_column(String(64), server_default="", default="")
    build: Mapped[str] = mapped_column(String(26))
    version: Mapped[int] = mapped_column(Integer)
    updated_at: Mapped[float] = mapped_column(Float)


class NameHistory(Base):
    """Where a name pointed, since when."""

    __tablename__ = "name_history"
    name: Mapped[str] = mapped_column(String(128), primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True)
    build: Mapped[str] = mapped_column(String(26))
    at: Mapped[float] = mapped_column(Float)


class Outbox(Base):
    """Wake-ups written in the transaction that made the work; a relay sends them after the commit."""

    __tablename__ = "outbox"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    work: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[float] = mapped_column(Float)


class Notice(Base):
    """What became of a build, for one receiver outside."""

    __tablename__ = "notices"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    build: Mapped[str] = mapped_column(String(26), index=True)
    profile: Mapped[str] = mapped_column(String(64))
    event: Mapped[str] = mapped_column(String(16))
    state: Mapped[str] = mapped_column(String(12))  # waiting, sent, given_up
    attempts: Mapped[int] = mapped_column(Integer)
    result: Mapped[str | None] = mapped_column(String(200))  # of the last attempt
    created_at: Mapped[float] = mapped_column(Float)
    not_before: Mapped[float] = mapped_column(Float)
    told_at: Mapped[float | None] = mapped_column(Float)

    __table_args__ = (Index("ix_notices_due", "state", "not_before"),)


class Worker(Base):
    """A process that claims units, as it last told of itself."""

    __tablename__ = "workers"
    id: Mapped[str] = mapped_column(String(128), primary_key=True)
    host: Mapped[str] = mapped_column(String(256))
    pid: Mapped[int] = mapped_column(Integer)
    version: Mapped[str] = mapped_column(String(32))
    state: Mapped[str] = mapped_column(String(12))  # working, draining
    classes: Mapped[list[Any]] = mapped_column(JSON)
    slots: Mapped[int] = mapped_column(Integer)
    busy: Mapped[int] = mapped_column(Integer)
    budget: Mapped[int] = mapped_column(BigInteger)  # bytes of memory its children may have together
    taken: Mapped[int] = mapped_column(BigInteger)  # of these, promised to what runs
    used: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")  # that its children have
    ledger: Mapped[str] = mapped_column(String(128), default="", server_default="", index=True)
    process: Mapped[str] = mapped_column(String(128), default="", server_default="")  # tells who died
    polled_at: Mapped[float | None] = mapped_column(Float)  # when it last asked for work
    waiting: Mapped[str | None] = mapped_column(String(400))  # why it takes nothing though there is work
    # That it has; None: it does not look at what units name
    recipes: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
    # Each unit it runs with the source in hand, as of the last heartbeat
    in_hand: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
    started_at: Mapped[float] = mapped_column(Float)
    seen_at: Mapped[float] = mapped_column(Float)
    seen_until: Mapped[float] = mapped_column(Float)  # later without a new heartbeat: taken for dead


class Endpoint(Base):
    """What an endpoint of an object store was measured to do: moving medians over all children."""

    __tablename__ = "endpoints"
    profile: Mapped[str] = mapped_column(String(64), primary_key=True)
    latency: Mapped[float] = mapped_column(Float)  # seconds to the first byte
    stream: Mapped[float] = mapped_column(Float)  # bytes per second of one stream
    together: Mapped[float] = mapped_column(Float)  # of several at a time; 0: never measured
    # Seconds a step of several walks; 0: never measured. The column keeps its first name: schemas are only added to.
    lookahead: Mapped[float] = mapped_column("chained", Float, key="lookahead", server_default="0")
    updated_at: Mapped[float] = mapped_column(Float)


class Ledger(Base):
    """A memory limit that workers share, of a host or of a cgroup. Its row is locked while one of them claims."""

    __tablename__ = "ledgers"
    id: Mapped[str] = mapped_column(String(128), primary_key=True)
    host: Mapped[str] = mapped_column(String(256))
    source: Mapped[str] = mapped_column(String(256))
    # A unit that has waited for so much memory that nothing else is begun here until it has it.
    reserved: Mapped[int | None] = mapped_column(RowId)
    rest_until: Mapped[float] = mapped_column(Float)  # no reservation before: the light ones' time


class Lane(Base):
    """A build has units of one priority: the place where it takes its turn."""

    __tablename__ = "lanes"
    build: Mapped[str] = mapped_column(String(26), primary_key=True)
    priority: Mapped[int] = mapped_column(Integer, primary_key=True)
    # Ids of shares
    team: Mapped[str] = mapped_column(String(160))
    owner: Mapped[str] = mapped_column(String(160))
    own: Mapped[str] = mapped_column(String(160))


class Share(Base):
    """How much was done for a team, an owner or a build: whoever got least is next."""

    __tablename__ = "shares"
    id: Mapped[str] = mapped_column(String(160), primary_key=True)
    served: Mapped[int] = mapped_column(BigInteger)


class Observation(Base):
    """What one sort of source took in memory, beside what was predicted."""

    __tablename__ = "observations"
    sort: Mapped[str] = mapped_column(String(96), primary_key=True)
    peak: Mapped[int] = mapped_column(BigInteger)  # the most, forgotten slowly
    last: Mapped[int] = mapped_column(BigInteger)
    predicted: Mapped[int] = mapped_column(BigInteger)  # what the last one of it was promised
    count: Mapped[int] = mapped_column(BigInteger)
    updated_at: Mapped[float] = mapped_column(Float)


class Death(Base):
    """An attempt that came to nothing, and of what."""

    __tablename__ = "deaths"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    at: Mapped[float] = mapped_column(Float, index=True)
    work: Mapped[str] = mapped_column(String(16))
    build: Mapped[str] = mapped_column(String(26), index=True)
    unit: Mapped[int] = mapped_column(RowId)
    attempt: Mapped[int] = mapped_column(Integer)
    cause: Mapped[str] = mapped_column(String(16))
    how: Mapped[str] = mapped_column(String(64))
    in_hand: Mapped[str | None] = mapped_column(String(4096))
    memory: Mapped[int] = mapped_column(BigInteger)
    worker: Mapped[str] = mapped_column(String(128))


class Team(Base):
    """People who may see the same: the folders, buckets and views that bind them."""

    __tablename__ = "teams"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    roots: Mapped[list[Any]] = mapped_column(JSON)
    stores: Mapped[dict[str, Any]] = mapped_column(JSON)  # endpoint profile: patterns of buckets
    views: Mapped[list[Any]] = mapped_column(JSON)  # [as jobs see it, as workers see it]
    version: Mapped[int] = mapped_column(Integer)
    updated_at: Mapped[float] = mapped_column(Float)


class Token(Base):
    """Proof of who asks: a token, or the session of a browser that showed one. Its secret is known to its holder."""

    __tablename__ = "tokens"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    parent: Mapped[int | None] = mapped_column(RowId, index=True)  # of a session: its token
    label: Mapped[str] = mapped_column(String(128))
    owner: Mapped[str] = mapped_column(String(128))
    team: Mapped[str] = mapped_column(String(64))
    scope: Mapped[str] = mapped_column(String(8))
    created_at: Mapped[float] = mapped_column(Float)
    expires_at: Mapped[float] = mapped_column(Float)
    revoked_at: Mapped[float | None] = mapped_column(Float)
    used_at: Mapped[float | None] = mapped_column(Float)


class Deed(Base):
    """Who changed what. Rows are written with the change itself, and never changed."""

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    at: Mapped[float] = mapped_column(Float)
    owner: Mapped[str] = mapped_column(String(128))
    team: Mapped[str] = mapped_column(String(128))
    token: Mapped[int | None] = mapped_column(RowId)
    action: Mapped[str] = mapped_column(String(32))
    object: Mapped[str] = mapped_column(String(128))
    request: Mapped[str] = mapped_column(String(64))
    address: Mapped[str] = mapped_column(String(64))
