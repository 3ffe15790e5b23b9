"""Who may be told of builds: profiles of the settings, with where they are and what they may be sent."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

from blendex.errors import BlendexError, Code
from blendex.settings import NotifySettings, Settings


@dataclass(frozen=True, slots=True)
class Receiver:
    """One profile, with its secret at hand."""

    name: str
    url: str = field(repr=False)  # that of a chat is a secret
    template: str
    secret: str | None = field(repr=False)
    events: tuple[str, ...]
    private: bool


def receivers_of(settings: Settings, environment: Mapping[str, str] | None = None) -> dict[str, Receiver]:
    """The profiles of a process, by name.

    Raises:
        BlendexError: bad_request for a profile that cannot work, naming what is wrong.
    """
    environment = os.environ if environment is None else environment
    return {name: _receiver(name, item, environment) for name, item in settings.notify.items()}


def _receiver(name: str, item: NotifySettings, environment: Mapping[str, str]) -> Receiver:
    try:
        parts = urlsplit(item.url.get_secret_value())
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        raise _bad(name, "has no URL") from None
    if parts.scheme not in ("https", "http") or not host or port == 0:
        raise _bad(name, "has a URL that begins with neither https:// nor http://")
    if parts.username is not None:
        raise _bad(name, "has a URL with a password in it")
    if item.hosts and not any(fnmatchcase(host, pattern) for pattern in item.hosts):
        raise _bad(name, f"has a URL at {host}, which is none of its hosts")
    secret = None if item.secret is None else _secret(name, item.secret.get_secret_value(), environment)
    return Receiver(name, parts.geturl(), item.template, secret, item.events, item.private)


def _secret(name: str, text: str, environment: Mapping[str, str]) -> str:
    how, _, where = text.partition(":")
    if how == "env":
        if where not in environment:
            raise _bad(name, f"takes its secret from the variable {where}, which is not set")
        return environment[where]
    if how == "file":
        try:
            return Path(where).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise _bad(name, f"takes its secret from a file that cannot be read ({error.strerror})") from None
    return text


def _bad(name: str, what: str) -> BlendexError:
    return BlendexError(
        Code.BAD_REQUEST,
        f"the receiver {name[:64]} {what}.",
        next_step="Correct it in BLENDEX_NOTIFY; docs/operate.md tells how.",
    )


def addresses(host: str, port: int, *, private: bool) -> list[str]:
    """The addresses of a host, of which one is then connected to: asked for once, so that no second answer counts.

    Raises:
        PermissionError: one of them is not of the internet, and ``private`` says that all must be.
    """
    found = list(dict.fromkeys(str(item[4][0]) for item in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
    for text in found:
        address = ipaddress.ip_address(text.partition("%")[0])
        inner = getattr(address, "ipv4_mapped", None) or address
        if not private and (not inner.is_global or inner.is_multicast):
            raise PermissionError(f"{host} is at an address that is not public")
    return found
