"""Sources and contents: which token stood for which content, and where the sidecar of a content lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, case, literal_column, select, tuple_, update
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import Content, FormerContent, Mirror, Object, Source

AT_ONCE = 4_096
"""Rows of one statement."""
OF_CONTENT = (
    "recipe", "strength", "hash", "size", "records", "object", "offset", "length", "digest", "findings", "learned",
    "crc", "seconds",
)  # fmt: skip
OF_SOURCE = ("address", "recipe", "content", "token", "racy", "error", "seen_at", "read_at")
"""As rows are made here: by the hundred thousand, so as tuples. A source begins with its key, then its content."""
FORMER = 16
"""Contents that are remembered of one source, besides the one it has."""


class Known(NamedTuple):
    """What the catalog knows of one (address, recipe). A tuple: a large build makes hundreds of thousands."""

    address: str
    token: str
    racy: bool
    error: dict[str, Any] | None
    has_content: bool
    strength: str = ""
    content_hash: str = ""
    size: int = 0
    records: int = 0
    findings: tuple[dict[str, Any], ...] = ()
    digest: str = ""
    object: str = ""
    offset: int = 0
    length: int = 0
    mirror: str | None = None
    mirror_path: str | None = None
    learned: int = 0
    crc: int | None = None
    seconds: float | None = None


def known(session: Session, recipe: str, addresses: Sequence[str]) -> Iterator[Known]:
    """What is known of some addresses under one recipe; those without a row are left out."""
    source, content, item, mirror = (dialect.table(model) for model in (Source, Content, Object, Mirror))
    statement = (
        select(
            source.c.address, source.c.token, source.c.racy, source.c.error, source.c.path, source.c.mirror,
            content.c.strength, content.c.hash, content.c.size, content.c.records, content.c.findings, content.c.object,
            content.c.digest, content.c.offset, content.c.length, content.c.learned, content.c.crc, content.c.seconds,
        )
        .select_from(source.outerjoin(content, content.c.id == source.c.content))
        .where(source.c.recipe == recipe)
    )  # fmt: skip
    for start in range(0, len(addresses), AT_ONCE):
        part = addresses[start : start + AT_ONCE]
        # Fetched at once and taken apart by place: by name and one by one a row costs twice as much.
        rows = session.execute(dialect.by_key(session, statement, source.c.address, part)).all()
        # Thousands lie in a few objects and mirrors: these are asked for by themselves.
        objects = _by_id(session, item.c.name, {row[11] for row in rows}, item.c.state == "live")
        mirrors = _by_id(session, mirror.c.key, {row[5] for row in rows})
        for (
            address, token, racy, error, path, linked, strength, content_hash, size, records, findings, held_by,
            digest, offset, length, learned, crc, seconds,
        ) in rows:  # fmt: skip
            if (name := objects.get(held_by)) is None:
                yield Known(address, token, racy, error, False)
                continue
            yield Known(
                address, token, racy, error, True, strength, content_hash.hex(), size, records,
                tuple(findings) if findings else (), digest.hex(), name, offset, length, mirrors.get(linked), path,
                learned, crc, seconds,
            )  # fmt: skip


def _by_id(
    session: Session, column: ColumnElement[str], ids: set[int | None], *conditions: ColumnElement[bool]
) -> dict[int | None, str]:
    """A column of those rows of its table that have one of some ids."""
    if not (wanted := ids - {None}):
        return {}
    number = column.table.c.id
    statement = select(number, column).where(dialect.one_of(session, number, sorted(wanted)), *conditions)
    return {row[0]: row[1] for row in session.execute(statement)}


@dataclass(frozen=True, slots=True)
class Seen:
    """A source as the catalog shows it to people."""

    id: int
    address: str
    recipe: str
    racy: bool
    error: dict[str, Any] | None
    strength: str | None
    content_hash: str | None
    size: int | None
    records: int | None
    findings: tuple[dict[str, Any], ...]
    path: str | None
    token: str
    seen_at: float | None
    read_at: float | None


def look(session: Session, text: str, *, after: tuple[str, str] | None = None, limit: int = 50) -> list[Seen]:
    """Sources whose address begins with ``text``, in the order of address and recipe, after one of them."""
    statement = (
        select(
            Source.id, Source.address, Source.recipe, Source.racy, Source.error, Content.strength, Content.hash,
            Content.size, Content.records, Content.findings, Source.path, Source.token, Source.seen_at, Source.read_at,
        )
        .outerjoin(Content, Content.id == Source.content)
        .where(dialect.begins(session, Source.address, text))
        .order_by(Source.address, Source.recipe)
        .limit(limit)
    )  # fmt: skip
    if after is not None:
        statement = statement.where(tuple_(Source.address, Source.recipe) > after)
    return [
        Seen(
            row.id, row.address, row.recipe, row.racy, row.error, row.strength,
            row.hash.hex() if row.hash is not None else None, row.size, row.records, tuple(row.findings or ()),
            row.path, row.token, row.seen_at, row.read_at,
        )
        for row in session.execute(statement)
    ]  # fmt: skip


def former(session: Session, address: str, recipe: str) -> list[FormerContent]:
    """What a source held before, the newest first."""
    statement = select(FormerContent).where(FormerContent.address == address, FormerContent.recipe == recipe)
    rows = session.execute(statement).scalars()
    return sorted(rows, key=lambda row: row.read_at or 0.0, reverse=True)


def add_object(session: Session, name: str, size: int) -> int:
    """The row of an object, made if there is none; a dying one is revived."""
    row = session.execute(
        dialect.insert(session, Object)
        .values(name=name, size=size, state="live", created_at=dialect.now(session))
        .on_conflict_do_update(index_elements=["name"], set_={"state": "live", "dying_at": None})
        .returning(Object.id)
    )
    return int(row.scalar_one())


def record(session: Session, object_id: int, entries: Sequence[dict[str, Any]], at: float | None = None) -> None:
    """Take over the directory of a bundle: contents that are new, and what each source's token stands for.

    ``at``: when that was read, in seconds since the epoch; None: just now.
    """
    contents: dict[tuple[str, str, str], int] = {}
    # In the order of their keys, all contents before all sources: two transactions that record the same rows wait
    # for each other, and never in a circle.
    unique = {(entry["content_hash"], entry["recipe"], entry["strength"]): entry for entry in entries}
    keys = sorted(unique)
    for start in range(0, len(keys), AT_ONCE):
        part = keys[start : start + AT_ONCE]
        rows = [_content(unique[key], object_id) for key in part]
        # Where the first is not known, mostly none is.
        ids = None if _numbers(session, part[:1]) else dialect.new_ids(session, Content, len(part))
        if ids is not None and dialect.insert_new(
            session, Content, ("id", *OF_CONTENT), ((number, *row) for number, row in zip(ids, rows, strict=True))
        ):
            contents |= zip(part, ids, strict=True)
            continue
        described = [dict(zip(OF_CONTENT, row, strict=True)) for row in rows]
        dialect.upsert(session, Content, described, keys=("hash", "recipe", "strength"), then=_move_if_better)
        contents |= _numbers(session, part)
    now = session.execute(select(dialect.now(session))).scalar_one() if at is None else at
    read = [
        (
            entry["address"], entry["recipe"], contents[entry["content_hash"], entry["recipe"], entry["strength"]],
            entry["token"], entry["racy"], None, now, now,
        )
        for entry in entries
    ]  # fmt: skip
    _upsert(session, OF_SOURCE, read)


def _numbers(session: Session, keys: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], int]:
    """The rows of contents, by (content hash, recipe, strength); of other recipes and strengths, too."""
    content = dialect.table(Content)
    statement = select(content.c.id, content.c.hash, content.c.recipe, content.c.strength)
    asked = dialect.by_key(session, statement, content.c.hash, [bytes.fromhex(key[0]) for key in keys])
    return {(known.hex(), recipe, strength): number for number, known, recipe, strength in session.execute(asked).all()}


def _move_if_better(excluded: Any) -> tuple[dict[str, Any], Any]:
    """The sidecar of a known content lies where it lay, unless that object was lost or the new one has learnt more."""
    # By its name: an ON CONFLICT clause is nothing that SQLAlchemy correlates a subquery with.
    row: ColumnElement[int] = literal_column("contents.object")
    lost = select(Object.state).where(Object.id == row).scalar_subquery().is_distinct_from("live")
    # What was learnt lies beside the sidecar: an object that has both is the better one.
    better = excluded.learned > Content.learned
    better |= Content.seconds.is_(None) & excluded.seconds.is_not(None)
    names = ("object", "offset", "length", "digest", "learned", "crc", "seconds")
    return {name: excluded[name] for name in names}, lost | better


def _content(entry: dict[str, Any], object_id: int) -> tuple[Any, ...]:
    facts = entry["facts"]
    return (
        entry["recipe"], entry["strength"], bytes.fromhex(entry["content_hash"]), entry["size"], entry["records"],
        object_id, entry["offset"], entry["length"], bytes.fromhex(entry["digest"]), entry["findings"] or None,
        (1 + ("bad_rows" in facts)) if facts.get("learnt") else 0, entry.get("crc"), facts.get("seconds"),
    )  # fmt: skip


def also_at(session: Session, recipe: str, places: Mapping[str, str]) -> None:
    """What is known of some addresses is known of others as well: the same files are seen there.

    Args:
        session: of the catalog.
        recipe: under which.
        places: known address → the other one.
    """
    rows = []
    addresses = list(places)
    for start in range(0, len(addresses), AT_ONCE):
        found = select(Source.address, Source.token, Source.racy, Source.content).where(
            Source.recipe == recipe, dialect.one_of(session, Source.address, addresses[start : start + AT_ONCE])
        )
        rows += [
            (places[row.address], recipe, row.content, row.token, row.racy, None) for row in session.execute(found)
        ]
    _upsert(session, OF_SOURCE[:6], rows)


def record_failures(session: Session, failures: Sequence[dict[str, Any]]) -> None:
    """Keep why sources could not be indexed: address, recipe, error each; token and racy, when they are known.

    A failure that its bytes are to blame for is the answer for as long as the token is the same.
    """
    _upsert(
        session,
        OF_SOURCE,
        [
            (
                item["address"], item["recipe"], None, item.get("token", ""), item.get("racy", True), item["error"],
                None, None,
            )
            for item in failures
        ],
    )  # fmt: skip


def _upsert(session: Session, names: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
    """Write sources, each as the ``names`` say, which begin as ``OF_SOURCE`` does."""
    if not rows:
        return
    # The last one counts where a source was read twice; sorted for the reason that ``record`` gives.
    rows = [row for _, row in sorted({row[:2]: row for row in rows}.items())]
    for start in range(0, len(rows), AT_ONCE):
        part = rows[start : start + AT_ONCE]
        if not _held(session, [part[0][0]]) and dialect.insert_new(session, Source, names, part):
            continue
        _keep_former(session, part, _held(session, [row[0] for row in part]))
        described = [dict(zip(names, row, strict=True)) for row in part]
        dialect.upsert(session, Source, described, keys=("address", "recipe"), then=_replace_if_changed)


def _held(session: Session, addresses: Sequence[str]) -> list[tuple[int, str, str, int | None]]:
    """The rows of some addresses, as little of them as can be: number, address, recipe, content."""
    source = dialect.table(Source)
    statement = select(source.c.id, source.c.address, source.c.recipe, source.c.content)
    found = session.execute(dialect.by_key(session, statement, source.c.address, addresses))
    return [(row[0], row[1], row[2], row[3]) for row in found.all()]


def _keep_former(session: Session, rows: list[tuple[Any, ...]], held: list[tuple[int, str, str, int | None]]) -> None:
    """Remember what sources hold that are about to hold something else: the place of the oldest is taken."""
    new = {row[:2]: row[2] for row in rows}
    source, content = dialect.table(Source), dialect.table(Content)
    changed = [
        number
        for number, address, recipe, known in held
        if known is not None and new.get((address, recipe), known) != known
    ]
    if not changed:
        return
    old = session.execute(
        select(
            source.c.address, source.c.recipe, source.c.token, source.c.seen_at, source.c.read_at, source.c.changes,
            content.c.strength, content.c.hash, content.c.size, content.c.records,
        )
        .join(content, content.c.id == source.c.content)
        .where(dialect.one_of(session, source.c.id, changed))
        .order_by(source.c.address, source.c.recipe)
    )  # fmt: skip
    gone = [
        {
            "address": row.address, "recipe": row.recipe, "slot": row.changes % FORMER, "token": row.token,
            "strength": row.strength, "hash": row.hash, "size": row.size, "records": row.records,
            "seen_at": row.seen_at, "read_at": row.read_at,
        }
        for row in old
    ]  # fmt: skip
    dialect.upsert(
        session, FormerContent, gone, keys=("address", "recipe", "slot"),
        then=lambda excluded: (
            {name: excluded[name] for name in ("token", "strength", "hash", "size", "records", "seen_at", "read_at")},
            None,
        ),
    )  # fmt: skip


def _replace_if_changed(excluded: Any) -> tuple[dict[str, Any], Any]:
    same = Source.content.is_not_distinct_from(excluded.content)
    changed = ~same | (Source.token != excluded.token) | (Source.racy != excluded.racy) | (Source.error.is_not(None))
    return {
        "token": excluded.token,
        "racy": excluded.racy,
        "content": excluded.content,
        "error": excluded.error,
        # A link from an older mirror is right only while the content is the same.
        "mirror": case((same, Source.mirror), else_=None),
        "path": case((same, Source.path), else_=None),
        "seen_at": case((same, Source.seen_at), else_=excluded.seen_at),
        "read_at": excluded.read_at,
        "changes": Source.changes + case((same, 0), else_=1),
    }, changed


def written_in(session: Session, mirror: int, recipe: str, rows: Sequence[tuple[str, str]]) -> None:
    """Remember that the sidecars of these (address, path) rows lie in a mirror, to be linked from there."""
    dialect.update_from(
        session, Source, key="address", value="path", rows=rows, fixed={"mirror": mirror}, where={"recipe": recipe}
    )


def live_objects(session: Session) -> list[str]:
    """Names of the objects that are believed to be there."""
    kept = select(Object.name).where(Object.state.in_(("live", "dying"))).order_by(Object.id)
    return list(session.execute(kept).scalars())


def lose_object(session: Session, name: str) -> None:
    """The file of an object is gone or damaged: what it held is read again when somebody needs it."""
    session.execute(
        update(Object).where(Object.name == name).values(state="lost").execution_options(synchronize_session=False)
    )


def forget_failures(session: Session, recipe: str, addresses: Sequence[str]) -> None:
    """Let sources be read again that failed for good: somebody asked for it."""
    for start in range(0, len(addresses), AT_ONCE):
        part = addresses[start : start + AT_ONCE]
        session.execute(
            update(Source)
            .where(Source.recipe == recipe, dialect.one_of(session, Source.address, part), Source.error.is_not(None))
            .values(token="", racy=True)
            .execution_options(synchronize_session=False)
        )
