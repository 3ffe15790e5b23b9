"""Receivers are told what became of a build: signed, at least once, by a real server that fails first."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from blendex.builds import describe, notify, receivers
from blendex.builds.notify import Notifier
from blendex.builds.run import run_build
from blendex.builds.site import Site
from blendex.catalog import builds
from blendex.catalog.models import Notice
from blendex.errors import BlendexError, Code
from blendex.settings import Settings
from tests.support import corpus
from tests.support.inline import InlineRunner


class Receiver(ThreadingHTTPServer):
    """Answers with the statuses it was given, then with 204; keeps what came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses: list[int] = []
        self.got: list[tuple[dict[str, str], bytes]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?a=b"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers) | {"path": self.path}, body))
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 204)
        self.send_header("Location", self.server.url)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    yield server
    server.shutdown()
    server.server_close()


def profile(receiver: Receiver, **values: Any) -> dict[str, Any]:
    return {"url": receiver.url, "secret": "k", "private": True, **values}


def built(site: Site, data: Path, blend: str, **values: Any) -> dict[str, Any]:
    return run_build(site, corpus.submission(blend, data, **values), runner=InlineRunner())


def told(site: Site, build: str) -> list[dict[str, Any]]:
    with site.work.read() as session:
        found: list[dict[str, Any]] = describe.build_detail(site, session, builds.get(session, build))["notices"]
        return found


def time_passes(site: Site) -> None:
    with site.work.write() as session:
        session.execute(update(Notice).values(not_before=0))


def test_told_until_it_is_taken_with_a_signature(
    open_site: Callable[..., Site], data: Path, receiver: Receiver
) -> None:
    site = open_site(notify={"ops": profile(receiver)}, public_url="https://blendex.example/x/")
    receiver.statuses = [500, 302]
    build = built(site, data, corpus.corpus(data, 1), notify=("ops",), name="mine")
    notifier = Notifier(site)
    assert notifier.tell_one()
    assert not notifier.tell_one()  # it waits before it is tried again
    assert [(item["state"], item["result"]) for item in told(site, build["id"])] == [("waiting", "HTTP 500")]
    time_passes(site)
    assert notifier.tell_one()
    assert told(site, build["id"])[0]["result"] == "HTTP 302: redirects are not followed"
    time_passes(site)
    assert notifier.tell_one()
    (last,) = told(site, build["id"])
    assert (last["state"], last["attempts"], last["result"], last["event"]) == ("sent", 3, "HTTP 204", "ready")
    time_passes(site)
    assert not notifier.tell_one()
    assert len(receiver.got) == 3
    headers, body = receiver.got[-1]
    at, digest = (part.partition("=")[2] for part in headers[notify.SIGNATURE].split(","))
    assert digest == hmac.new(b"k", f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    assert (headers["X-Blendex-Event"], headers["path"]) == ("ready", "/hook?a=b")
    value = json.loads(body)
    assert (value["build"]["id"], value["build"]["path"]) == (build["id"], build["path"])
    assert value["url"] == f"https://blendex.example/x/builds/{build['id']}"


def test_failed_and_excluded_in_other_words_and_to_whom_they_concern(
    tmp_path: Path, data: Path, receiver: Receiver
) -> None:
    site = corpus.site(
        tmp_path / "root",
        notify={
            "chat": profile(receiver, template="slack", secret=None),
            "text": profile(receiver, template="text", events=["excluded"]),
        },
    )
    blend = corpus.corpus(data, 1, name="bad") + corpus.corpus(data, 1, name="good")
    corpus.put(data / "bad/audio_0.tar", b"no tar" * 200)
    failed = built(site, data, blend, notify=("chat", "text"), name="n")
    excluded = built(site, data, blend, notify=("chat", "text"), on_bad="exclude")
    assert (failed["state"], excluded["state"], len(excluded["excluded"])) == ("failed", "ready", 1), excluded
    notifier = Notifier(site)
    while notifier.tell_one():
        pass
    bodies = [body for _, body in receiver.got]
    assert json.loads(bodies[0])["text"].startswith(f"Blendex: n ({failed['id']}) failed: ")
    assert "is ready without 1 of its entries" in json.loads(bodies[1])["text"]
    assert bodies[2].startswith(b"Blendex: ")
    assert len(bodies) == 3
    assert notify.SIGNATURE not in receiver.got[0][0]
    states = {(item["profile"], item["event"], item["state"]) for item in told(site, failed["id"])}
    assert states == {("chat", "failed", "sent"), ("text", "failed", "given_up")}


def test_who_may_be_told_and_where(tmp_path: Path, data: Path, receiver: Receiver) -> None:
    site = corpus.site(
        tmp_path / "root",
        notify={"inner": profile(receiver, private=False), "theirs": profile(receiver, teams=["other"])},
    )
    blend = corpus.corpus(data, 1)
    for name in ("none", "theirs"):
        with pytest.raises(BlendexError) as refused:
            built(site, data, blend, notify=(name,))
        assert (refused.value.code, "Known are: inner." in refused.value.next_step) == (Code.BAD_REQUEST, True)
    build = built(site, data, blend, notify=("inner",))
    assert Notifier(site).tell_one()
    assert told(site, build["id"])[0]["result"].startswith("refused: its address is not public")
    assert receiver.got == []
    for url in ("ftp://a", "https://u:p@a/", "https://", "http://a:b/", "https://a/ "[:10]):
        with pytest.raises(BlendexError, match="evil"):
            receivers.receivers_of(
                Settings.model_validate({"notify": {"evil": {"url": url, "hosts": ["hooks.example"]}}})
            )
    one = {"one": {"url": "https://hooks.example/x", "hosts": ["hooks.*"], "secret": "env:KEY"}}
    settings = Settings.model_validate({"notify": one})
    assert receivers.receivers_of(settings, {"KEY": "s"})["one"].secret == "s"
    assert "hooks.example" not in repr(settings)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "::ffff:127.0.0.1", "0.0.0.0", "2130706433", "fe80::1"]
)
def test_addresses_inside_are_refused(host: str) -> None:
    with pytest.raises(PermissionError):
        receivers.addresses(host, 80, private=False)


def test_a_receiver_that_never_ends_is_left_in_time(receiver: Receiver) -> None:
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                try:
                    while not stop.wait(0.05):
                        connection.sendall(b"X-A: b\r\n")
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        one = receivers.Receiver("a", f"http://127.0.0.1:{listener.getsockname()[1]}/", "json", None, (), True)
        with pytest.raises((OSError, notify.http.client.HTTPException)):
            notify.send(one, b"{}", {}, seconds=0.5)
        stop.set()
        thread.join()


def test_pauses_grow_and_end() -> None:
    pauses = [notify.pause_after(number) for number in range(1, notify.MOST_ATTEMPTS + 1)]
    assert pauses[:3] == [5, 10, 20]
    assert max(pauses) == notify.MOST_PAUSE
    assert pauses == sorted(pauses)
