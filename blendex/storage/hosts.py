"""Connections to hosts of web servers, to public addresses and to networks that a profile names, and to nothing else.

A name is resolved once and the connection goes to the very address that was judged, so that a name which means another
machine a moment later leads nowhere. What a cloud tells its machines about themselves is never connected to.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Iterable, Sequence
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from blendex.storage.failures import StoreFailure, Trouble
from blendex.storage.profiles import Profile

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Of Amazon, Google and Azure (two), of Amazon over IPv6, of Alibaba: some are public by their numbers.
METADATA = frozenset(
    map(ipaddress.ip_address, ("169.254.169.254", "168.63.129.16", "fd00:ec2::254", "100.100.100.200"))
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_PORTS = {"http": 80, "https": 443}


def meant(address: Address) -> Address:
    """The address that packets to ``address`` come to: IPv4 may be wrapped into IPv6 in several ways."""
    if isinstance(address, ipaddress.IPv6Address):
        inside = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inside is None and address in _NAT64:
            inside = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return inside or address
    return address


def allowed(address: str, networks: Iterable[str]) -> bool:
    """Whether a host may lie at ``address``: it is public, or in one of the networks, and no metadata service."""
    found = meant(ipaddress.ip_address(address.partition("%")[0]))
    if found in METADATA:
        return False
    if any(found in ipaddress.ip_network(network) for network in networks):
        return True
    return found.is_global and not found.is_multicast


class Connection(HTTPConnection):
    """A connection that is only made to where the profile may go.

    Args:
        profile: networks, certificates and times.
        scheme: http or https.
        authority: host and perhaps port.

    Raises:
        StoreFailure: SETTINGS for a host or port that cannot be.
    """

    def __init__(self, profile: Profile, scheme: str, authority: str, context: ssl.SSLContext) -> None:
        try:
            parts = urlsplit(f"//{authority}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or not authority.isascii():
            raise StoreFailure(Trouble.SETTINGS, "its host is none, or not written in ASCII (xn--…)")
        super().__init__(host, port or _PORTS[scheme], timeout=profile.read_seconds)
        self._profile = profile
        self._context = context if scheme == "https" else None
        self.place = (scheme, authority)
        self.used = False

    def connect(self) -> None:
        """Resolve, judge and connect.

        Raises:
            StoreFailure: SETTINGS (an address that may not be, a certificate), DOWN.
        """
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise StoreFailure(Trouble.DOWN, f"its name cannot be resolved: {type(error).__name__}") from None
        judged = [item for item in found if allowed(str(item[4][0]), self._profile.networks)]
        if not judged:
            raise StoreFailure(
                Trouble.SETTINGS,
                "its host has no public address; name its network in `networks` of the profile if it is meant",
            )
        self.sock = self._first(judged)
        if self._context is None:
            return
        try:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self.host)
        except ssl.SSLCertVerificationError:
            raise StoreFailure(
                Trouble.SETTINGS, "its certificate is not trusted; set `ca` of the profile to the file of its issuer"
            ) from None
        except OSError as error:
            raise StoreFailure(Trouble.DOWN, type(error).__name__) from None

    def _first(self, found: Sequence[tuple[int, int, int, str, Any]]) -> socket.socket:
        for number, (family, kind, protocol, _, address) in enumerate(found, 1):
            made = socket.socket(family, kind, protocol)
            try:
                made.settimeout(self._profile.connect_seconds)
                made.connect(address)
                made.settimeout(self._profile.read_seconds)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                made.close()
                if number == len(found):
                    raise StoreFailure(Trouble.DOWN, type(error).__name__) from None
            else:
                return made
        raise AssertionError


def reached(profile: Profile, scheme: str, authority: str) -> None:
    """Returns when a connection could be made.

    Raises:
        StoreFailure: SETTINGS, DOWN.
    """
    connection = Connection(profile, scheme, authority, context_of(profile))
    try:
        connection.connect()
    finally:
        connection.close()


def context_of(profile: Profile) -> ssl.SSLContext:
    """How certificates are checked and shown.

    Raises:
        StoreFailure: SETTINGS, a file of the profile cannot be read.
    """
    try:
        made = ssl.create_default_context(cafile=profile.ca)
        if not profile.verify:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        if profile.client_cert:
            made.load_cert_chain(profile.client_cert, profile.client_key)
    except OSError as error:
        raise StoreFailure(
            Trouble.SETTINGS, f"`ca`, `client_cert` or `client_key` cannot be used ({type(error).__name__})"
        ) from None
    return made
