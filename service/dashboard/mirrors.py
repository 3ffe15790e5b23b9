"""Mirrors: found by whatever is known of one, and what each holds."""

from __future__ import annotations

import os
from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from blendex.builds import describe, verifying
from blendex.builds.difference import Difference, difference
from blendex.builds.naming import not_found
from blendex.builds.usage import usage
from blendex.catalog import builds, holds, mirrors, states, verifications
from blendex.catalog.models import Mirror
from blendex.errors import BlendexError
from blendex.units.receipt import read_receipt
from service import lookup
from service.dashboard.forms import ask, read_form
from service.dashboard.live import Part, stream
from service.dashboard.pages import PageRoute, page, render, see
from service.house import House, HouseOf
from service.query import refuse_unknown

router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[Depends(refuse_unknown)])

PAGE = 50
SOURCES = 50
# Two lists of 400,000 sources are read side by side in about 4 s; larger ones are for the command line.
MOST_COMPARED = 1_000_000
Text = Annotated[str, Query(max_length=4096)]
Key = Annotated[str, Query(max_length=64)]


def _read(house: House, text: str, before: str) -> tuple[dict[str, Any], float]:
    with house.site.work.read() as session:
        start = lookup.mirror_after(house, session, before) if before else None
        team, last = house.site.who.only, None
        holders: dict[str, str] = {}
        whole = True
        if text.startswith("/") and house.site.root.path not in text:
            # A path is that of a source: whose lists hold it?
            used = usage(session, text, team)
            whole = used.whole
            holders = {item["mirror"]: item["kind"] for item in used.uses if item["mirror"]}
            rows = (mirrors.get(session, key) for key in holders)
            found = [row for row in rows if row is not None and house.resolver.verdicts.mirror(house.site, row.key)]
        else:

            def fetch(after: int | None, most: int) -> list[Mirror]:
                if text:
                    return mirrors.search(session, text, before=after, limit=most, team=team)
                return mirrors.page(session, before=after, limit=most)

            found, last = house.resolver.verdicts.page(house.site, fetch, start, PAGE)
        verified = verifications.of(session, [row.key for row in found[:PAGE]])
        shown = [
            describe.mirror_summary(house.site, row, verifying.summary(verified.get(row.key)))
            for row in found[:PAGE]
        ]
        names = mirrors.names_of(session, [row["key"] for row in shown], team)
        following = urlencode({"text": text, "before": last}) if last is not None else None
        now = states.now(session)
    return {
        "rows": shown, "names": names, "next": following, "text": text, "before": before, "by_source": bool(holders),
        "whole": whole,
    }, now  # fmt: skip


@router.get("/mirrors")
def listed(request: Request, house: HouseOf, text: Text = "", before: Key = "") -> Response:
    """Mirrors, newest first, or those that a text may mean."""
    values, now = _read(house, text.strip(), before)
    return page(request, "mirrors.html", now, **values)


@router.get("/mirrors/live")
async def live(request: Request, house: HouseOf, text: Text = "", before: Key = "") -> Response:
    """The same table, whenever something in it changed."""

    def make() -> Part:
        values, now = _read(house, text.strip(), before)
        return render("_mirrors.html", now, **values), ()

    return stream(request, house, "mirrors", f"mirrors{(text, before)!r}", make)


@router.get("/mirrors/{key}")
def show(
    request: Request,
    house: HouseOf,
    key: str,
    against: Annotated[str, Query(max_length=128)] = "",
    at: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """One mirror: its receipt, who uses it, what it holds, and how it differs from another one."""
    answer = house.resolver.mirror(lookup.mirror_key(key))
    with house.site.work.read() as session:
        row = mirrors.get(session, key)
        verified = verifying.summary(verifications.of(session, [key]).get(key))
        summary = describe.mirror_summary(house.site, row) if row is not None else None
        users = builds.of_mirror(session, key, 20, house.site.who.only)
        names = mirrors.names_of(session, [key], house.site.who.only).get(key, [])
        newest, _ = house.resolver.verdicts.page(
            house.site, lambda after, most: mirrors.page(session, before=after, limit=most), None, 12
        )
        others = [item for item in newest if item.key != key and item.state != "collected"]
        held_by = holds.of_mirror(session, key, house.site.who.only)
        now = states.now(session)
    receipt = trouble = None
    held: dict[str, Any] = {"items": [], "next": None}
    compared: tuple[str, Difference] | None = None
    if answer.path is not None:
        try:
            receipt = read_receipt(answer.path, key)
            if not house.site.who.everything:
                receipt["excluded"] = []  # they may be another team's; a build tells its own
            held = _sources(answer.path, at)
            if against.strip():
                compared = _compare(house, answer.path, against.strip(), receipt)
        except BlendexError as error:
            trouble = error
    return page(
        request, "mirror.html", now,
        key=key, mirror=summary, state="collected" if answer.path is None else "published", receipt=receipt,
        names=names, users=users, others=others, held=held, at=at, against=against.strip(), compared=compared,
        trouble=trouble, folder=answer.path, held_by=held_by, verified=verified,
    )  # fmt: skip


@router.post("/mirrors/{key}/verify")
async def verify(request: Request, key: str) -> Response:
    """Have it read whole."""
    form = await read_form(request)
    query = [("sources", "true")] if form.get("sources") else []
    (await ask(request, f"/v1/mirrors/{lookup.mirror_key(key)}/verify", query=query)).check()
    return see(f"/mirrors/{key}#h-verified")


def _sources(mirror: str, at: int) -> dict[str, Any]:
    """A page of what it holds, from a place in its list on: a place is a byte, so that no line before it is read."""
    path = os.path.join(mirror, "sources.jsonl")
    items: list[dict[str, Any]] = []
    with open(path, "rb") as file:
        if at:
            file.seek(at - 1)
            if file.read(1) != b"\n":
                file.readline()  # not the beginning of a line: go on with the next one
        while len(items) < SOURCES and (line := file.readline()):
            items.append(orjson.loads(line))
        place = file.tell()
        more = bool(file.read(1))
    return {"items": items, "next": place if more else None}


def _compare(house: House, mirror: str, against: str, receipt: dict[str, Any]) -> tuple[str, Difference]:
    """How a mirror differs from another, named by key, name or build."""
    if len(against) == 64:
        other = house.resolver.mirror(lookup.mirror_key(against))
    elif len(against) == lookup.ID_LENGTH:
        other = house.resolver.build(lookup.build_id(against))
    else:
        other = house.resolver.name(lookup.name_of(against))
    if other.path is None or other.key is None:
        raise not_found("mirror", against)
    if receipt["counts"]["sources"] + read_receipt(other.path, other.key)["counts"]["sources"] > MOST_COMPARED:
        raise not_found("difference", f"between mirrors of more than {MOST_COMPARED:,} sources on a page")
    return other.key, difference(other.path, mirror)
