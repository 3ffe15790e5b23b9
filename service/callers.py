"""Who asks: found out once for a request, before anything else of it is looked at.

A bearer token, the session of a browser, a header from a listed proxy, or an address from which anybody may look up:
the first of these that a request brings decides. What a secret proves is kept for some seconds, so that thousands of
nodes that show one token cost no query each; a token that is revoked is worth nothing after ``KEPT_SECONDS``.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from blendex.builds import teams as narrowing
from blendex.builds.latest import Latest
from blendex.builds.site import Site
from blendex.builds.tokens import OWNER, SCOPES, digest, included, well_formed
from blendex.catalog import dialect, teams, tokens
from blendex.catalog.audit import Actor
from blendex.errors import BlendexError, Code
from service.rules import LOOKUP, OPEN, RULES
from service.watch import Snapshot, Watch

SESSION_COOKIE = "blendex_session"
KEPT_SECONDS = 5.0
# While the database is away, who was known a short while ago may still look up where mirrors are.
AWAY_SECONDS = 900.0
KEPT = 10_000
ALL = frozenset(SCOPES)
ANONYMOUS = "anonymous"
# A request with one of these was passed on by somebody: the address it comes from is not its sender's.
FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Args:
        owner: a person or program; ``anonymous`` for nobody in particular.
        team: theirs; empty without accounts, and for nobody in particular.
        scopes: what they may do.
        token_id: of the token that they showed, or opened their session with.
        everything: sees what is any team's.
        address: where the request came from.
        session: whether a browser's session says so.
    """

    owner: str
    team: str
    scopes: frozenset[str]
    token_id: int | None = None
    everything: bool = False
    address: str = ""
    session: bool = False


def caller(request: Request) -> Caller:
    """Who asks. Every route has found out before it begins."""
    found: Caller = request.state.caller
    return found


class _Known(NamedTuple):
    at: float
    caller: Caller
    site: Site  # as they may use it


class Gate:
    """Finds out who asks, for one site.

    Args:
        site: root and catalog, as the service itself may use them.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        settings = site.settings
        self.asks = settings.auth != "none"
        self._anonymous = _networks(settings.anonymous_lookup)
        self._proxies = _networks(settings.proxy.networks if settings.proxy else ())
        self._kept = Latest[str, _Known](KEPT)
        self._nobody = Caller(ANONYMOUS, "", frozenset())

    async def identify(self, request: Request, scope: str) -> tuple[Caller, Site]:
        """Who asks for something of a scope, and the site as they may use it.

        Raises:
            BlendexError: unauthenticated.
        """
        address = request.client.host if request.client else ""
        found = await self._find(request, address, scope)
        if found is not None:
            return replace(found.caller, address=address), found.site
        if scope == OPEN:
            return replace(self._nobody, address=address), narrowing.narrowed(self._site, None)
        raise _refusal("nobody said who asks.")

    async def _find(self, request: Request, address: str, scope: str) -> _Known | None:
        if not self.asks:
            return _Known(0.0, Caller(self._site.settings.owner, "", ALL, everything=True), self._site)
        if scope == OPEN:
            return None  # not worth a query, and a probe must not depend on one
        header = request.headers.get("authorization")
        if header is not None:
            kind, _, secret = header.partition(" ")
            found = await self._by_secret(secret.strip(), scope) if kind.lower() == "bearer" else None
            if found is None:
                raise _refusal("the token is not good: it is unknown, was revoked, or its time is over.")
            return found
        cookie = request.cookies.get(SESSION_COOKIE)
        if cookie is not None and (found := await self._by_secret(cookie, scope)) is not None:
            return found
        if self._proxies and _within(address, self._proxies):
            return await self._by_proxy(request, scope)
        passed_on = any(name in request.headers for name in FORWARDED)
        if scope == LOOKUP and not passed_on and _within(address, self._anonymous):
            return _Known(0.0, Caller(ANONYMOUS, "", included(LOOKUP), everything=True), self._site)
        return None

    async def _by_secret(self, secret: str, scope: str) -> _Known | None:
        if not well_formed(secret):
            return None
        hashed = digest(secret)
        return await self._kept_or(hashed, lambda: self._of_token(hashed), scope)

    async def _by_proxy(self, request: Request, scope: str) -> _Known | None:
        proxy = self._site.settings.proxy
        assert proxy is not None
        said = [request.headers.getlist(name) for name in (proxy.user_header, proxy.team_header)]
        if any(len(values) != 1 for values in said):
            return None  # said twice: one of the two was sent by somebody else
        owner, team = (values[0] for values in said)
        if not OWNER.fullmatch(owner) or not narrowing.NAME.fullmatch(team):
            return None
        return await self._kept_or(f"{owner} {team}", lambda: self._of_proxy(owner, team), scope)

    def known(self, request: Request) -> int | None:
        """The token that a request shows, if it was good a moment ago: for those who ask before the guard does."""
        shown = request.headers.get("authorization", "").partition(" ")[2].strip()
        secret = shown or request.cookies.get(SESSION_COOKIE)
        kept = self._kept.get(digest(secret)) if secret else None
        return kept.caller.token_id if kept is not None else None

    async def _kept_or(self, key: str, find: Callable[[], tuple[Caller, Site] | None], scope: str) -> _Known | None:
        kept = self._kept.get(key)
        now = time.monotonic()
        if kept is not None and now - kept.at < KEPT_SECONDS:
            return kept
        try:
            asked = await run_in_threadpool(find)
        except dialect.AWAY:
            if kept is not None and scope == LOOKUP and now - kept.at < AWAY_SECONDS:
                return kept
            raise
        if asked is None:
            self._kept.pop(key, None)
            return None
        self._kept[key] = found = _Known(now, *asked)
        return found

    def _of_token(self, hashed: str) -> tuple[Caller, Site] | None:
        with self._site.work.read() as session:
            shown = tokens.find(session, hashed)
        if shown is None or not shown.valid:
            return None
        if not shown.noted:
            with self._site.work.write() as session:
                tokens.note_use(session, shown.id)
                tokens.note_use(session, shown.token)
        scopes = included(shown.scope)
        caller = Caller(
            shown.owner, shown.team, scopes, shown.token, everything="admin" in scopes, session=shown.id != shown.token
        )
        return caller, narrowing.narrowed(self._site, shown.rules)

    def _of_proxy(self, owner: str, team: str) -> tuple[Caller, Site] | None:
        proxy = self._site.settings.proxy
        assert proxy is not None
        with self._site.work.read() as session:
            rules = teams.get(session, team)
        if rules is None:
            return None
        return Caller(owner, team, included(proxy.scope)), narrowing.narrowed(self._site, rules)

    def forget(self, secret: str) -> None:
        """Keep no longer what a secret proved: its session was ended."""
        self._kept.pop(digest(secret), None)


async def guard(request: Request) -> None:
    """Find out who asks, and refuse what they may not do. A route that no rule names may be used by nobody.

    Raises:
        BlendexError: unauthenticated, forbidden.
    """
    scope = RULES.get((request.method, request.scope["route"].path), "admin")
    gate: Gate = request.app.state.gate
    found, site = await gate.identify(request, scope)
    if scope != OPEN and scope not in found.scopes:
        raise BlendexError(
            Code.FORBIDDEN,
            f"this needs the scope {scope}; yours is {max(found.scopes, key=SCOPES.index)}.",
            next_step="Ask for a token with that scope.",
        )
    request.state.caller, request.state.scope = found, scope
    number = getattr(request.state, "number", "")
    nameless = not found.team and gate.asks
    actor = Actor(found.owner, found.team, found.everything, found.token_id, number, found.address, nameless)
    request.state.site = replace(site, actor=actor)


class Guarded:
    """Watches for whoever asked while they still may: a token that is revoked ends its streams and waits, too.

    Args:
        watch: of the process.
        request: what was asked.
    """

    def __init__(self, watch: Watch, request: Request) -> None:
        self._watch = watch
        self._request = request

    @property
    def streams(self) -> int:
        """Streams that are open in this process."""
        return self._watch.streams

    @streams.setter
    def streams(self, value: int) -> None:
        self._watch.streams = value

    async def _check(self) -> None:
        gate: Gate = self._request.app.state.gate
        await gate.identify(self._request, self._request.state.scope)

    async def until_ended(self, build: str, seconds: float) -> None:
        """As of the watch.

        Raises:
            BlendexError: unauthenticated, when they may not ask any more.
        """
        await self._watch.until_ended(build, seconds)
        await self._check()

    async def follow(self, build: str, after: int | None = None) -> AsyncGenerator[Snapshot, None]:
        """As of the watch; it ends when they may not ask any more."""
        async with aclosing(self._watch.follow(build, after)) as states:
            following: asyncio.Task[Snapshot] | None = None
            try:
                while True:
                    following = following or asyncio.ensure_future(anext(states))
                    done, _ = await asyncio.wait({following}, timeout=KEPT_SECONDS)
                    try:
                        await self._check()
                        if done:
                            snapshot, following = following.result(), None
                            yield snapshot
                    except (BlendexError, StopAsyncIteration, *dialect.AWAY):
                        return
            finally:
                if following is not None:
                    following.cancel()
                    await asyncio.gather(following, return_exceptions=True)


def _refusal(why: str) -> BlendexError:
    return BlendexError(
        Code.UNAUTHENTICATED, why, next_step="Send Authorization: Bearer and a token; see blendex token create."
    )


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(texts: Iterable[str]) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, texts))


def _within(address: str, networks: Iterable[Network]) -> bool:
    try:
        given = ipaddress.ip_address(address)
    except ValueError:
        return False
    plain = getattr(given, "ipv4_mapped", None) or given
    return any(plain in network for network in networks)
