"""The commands answered by a service."""

from __future__ import annotations

import io
import os
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from blendex.blend.discover import nested_files
from blendex.blend.load import Limits
from blendex.blend.world import World
from blendex.builds.submission import Submission
from blendex.cli.client import Watch
from blendex.errors import BlendexError, Code
from blendex.storage.local import LocalStorage
from blendex.units.plan import FolderReader

POLL_SECONDS = 0.5
ENDED = ("ready", "failed", "cancelled")


class RemoteClient:
    """Talks to the API at ``server``, with the token that the environment holds."""

    def __init__(self, server: str) -> None:
        headers = {"Accept": "application/json"}
        if (token := token_of(os.environ)) is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx.Client(base_url=server.rstrip("/"), timeout=120.0, headers=headers)

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()

    def _ask(self, method: str, path: str, **values: Any) -> Any:
        return self._answer(method, path, **values).json()

    def _answer(self, method: str, path: str, **values: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **values)
        except httpx.HTTPError as error:
            raise BlendexError(
                Code.BUSY,
                f"the service at {self._http.base_url} does not answer ({type(error).__name__}).",
                next_step="Check the address; the pointer files under builds/ and names/ work without it.",
            ) from error
        if answer.is_success:
            return answer
        try:
            data = answer.json()
            raise BlendexError(
                Code(data["code"]),
                data["detail"],
                file=data.get("file"),
                line=data.get("line"),
                byte=data.get("byte"),
                next_step=data.get("next_step", ""),
            )
        except (ValueError, KeyError, TypeError):
            raise BlendexError(
                Code.INTERNAL, f"the service answered {answer.status_code}.", next_step="See its log."
            ) from None

    def _post(self, path: str, submission: Submission, **extra: str) -> Any:
        query: list[tuple[str, str]] = [*extra.items(), *_world(submission.world)]
        query += [("allow", item) for item in submission.allow]
        query += [("on_bad", submission.on_bad)]
        query += [("packs", submission.packs), ("sidecars", submission.sidecars)]
        query += [("tars", submission.tars)]
        if submission.compat:
            query += [("compat", submission.compat)]
        query += [("notify", item) for item in submission.notify]
        if submission.name:
            query += [("name", submission.name)]
        query += [("label", f"{key}={value}") for key, value in submission.labels.items()]
        body, kind = submission.text, "application/yaml"
        if nested := self._nested(submission):
            body, kind = _tar(submission, nested), "application/x-tar"
            query += [("main", os.path.basename(submission.file))]
        return self._ask("POST", path, params=query, content=body, headers={"Content-Type": kind})

    def _nested(self, submission: Submission) -> dict[str, bytes]:
        """Nested blends that lie beside the blend here, and so travel with it."""
        limits = Limits()
        reader = FolderReader(LocalStorage(("/",)), {}, limits.bytes)
        found = nested_files(submission.text, submission.file, submission.world, reader, limits)
        folder = os.path.dirname(submission.file) + "/"
        return {path: text for path, text in found.items() if os.path.abspath(path).startswith(folder)}

    def _watch(self, build: dict[str, Any], watch: Watch) -> dict[str, Any]:
        while build["state"] not in ENDED:
            watch(build)
            time.sleep(POLL_SECONDS)
            build = self.show_build(build["id"])
        return build

    def build(self, submission: Submission, watch: Watch) -> dict[str, Any]:
        """Post a blend and wait."""
        return self._watch(self._post("/v1/builds", submission), watch)

    def lint(self, parts: list[tuple[str, tuple[str, bytes]]], world: World, upstream: str, output: str) -> bytes:
        """Have a config linted; the body of the answer.

        Args:
            parts: name, file name and content of each part of the body.
            world: what relative paths, variables and environment values mean.
            upstream: the profile.
            output: json, sarif or zip.
        """
        query = [*_world(world), ("upstream", upstream), ("output", output)]
        return self._answer("POST", "/v1/lint", params=query, files=parts).content

    def plan(self, submission: Submission) -> dict[str, Any]:
        """Post it as a dry run."""
        plan: dict[str, Any] = self._post("/v1/builds", submission, dry_run="1")
        return plan

    def builds(self, state: str | None, labels: list[str], limit: int) -> list[dict[str, Any]]:
        """Builds, newest first."""
        query: dict[str, Any] = {"limit": limit, "label": labels} | ({"state": state} if state else {})
        rows: list[dict[str, Any]] = self._ask("GET", "/v1/builds", params=query)["builds"]
        return rows

    def show_build(self, build: str) -> dict[str, Any]:
        """One build."""
        value: dict[str, Any] = self._ask("GET", f"/v1/builds/{build}")
        return value

    def findings(self, build: str) -> dict[str, Any]:
        """What was found in the sources of a build."""
        value: dict[str, Any] = self._ask("GET", f"/v1/builds/{build}/findings")
        return value

    def log(self, build: str) -> dict[str, Any]:
        """What happened to a build."""
        value: dict[str, Any] = self._ask("GET", f"/v1/builds/{build}/log")
        return value

    def cancel(self, build: str) -> dict[str, Any]:
        """Cancel a build."""
        value: dict[str, Any] = self._ask("POST", f"/v1/builds/{build}/cancel")
        return value

    def retry(self, build: str, watch: Watch) -> dict[str, Any]:
        """Retry a build and wait."""
        return self._watch(self._ask("POST", f"/v1/builds/{build}/retry"), watch)

    def accept(self, build: str, who: str, why: str, watch: Watch) -> dict[str, Any]:
        """Accept a build and wait."""
        return self._watch(self._ask("POST", f"/v1/builds/{build}/accept", json={"who": who, "why": why}), watch)

    def rebind(self, build: str, moves: Sequence[tuple[str, str]], watch: Watch) -> dict[str, Any]:
        """Let a build follow its paths and wait."""
        asked = [("map", f"{old}={new}") for old, new in moves]
        return self._watch(self._ask("POST", f"/v1/builds/{build}/rebind", params=asked), watch)

    def pack(self, build: str, asked: dict[str, str], watch: Watch) -> dict[str, Any]:
        """Pack what a build has and wait."""
        return self._watch(self._ask("POST", f"/v1/builds/{build}/packs", params=asked), watch)

    def mirrors(self, limit: int) -> list[dict[str, Any]]:
        """Mirrors, newest first."""
        rows: list[dict[str, Any]] = self._ask("GET", "/v1/mirrors", params={"limit": limit})["mirrors"]
        return rows

    def show_mirror(self, key: str) -> dict[str, Any]:
        """One mirror with its receipt."""
        value: dict[str, Any] = self._ask("GET", f"/v1/mirrors/{key}")
        return value | {"receipt": self._ask("GET", f"/v1/mirrors/{key}/receipt")}

    def usage(self) -> dict[str, Any]:
        """What the caller's team uses, and may."""
        value: dict[str, Any] = self._ask("GET", "/v1/usage")
        return value

    def holds(self, key: str) -> dict[str, Any]:
        """Who holds a mirror."""
        value: dict[str, Any] = self._ask("GET", f"/v1/mirrors/{key}/holds")
        return value

    def hold(self, key: str, fields: dict[str, str]) -> dict[str, Any]:
        """Pin a mirror."""
        value: dict[str, Any] = self._ask("POST", f"/v1/mirrors/{key}/holds", json={"kind": "pin"} | fields)
        return value

    def release(self, key: str, kind: str, holder: str) -> dict[str, Any]:
        """Release a hold."""
        value: dict[str, Any] = self._ask("DELETE", f"/v1/mirrors/{key}/holds/{kind}/{quote(holder, safe='')}")
        return value

    def verify_mirror(self, key: str, sources: bool, report: Watch) -> dict[str, Any]:
        """Have a mirror verified, and wait; how far it is, is not told."""
        del report
        mirror = self._ask("POST", f"/v1/mirrors/{key}/verify", params={"sources": sources})
        while (found := mirror["verification"])["state"] == "running":
            time.sleep(POLL_SECONDS)
            mirror = self._ask("GET", f"/v1/mirrors/{key}")
        value: dict[str, Any] = found
        return value

    def names(self) -> list[dict[str, Any]]:
        """All names."""
        rows: list[dict[str, Any]] = self._ask("GET", "/v1/names")["names"]
        return rows

    def show_name(self, name: str) -> dict[str, Any]:
        """One name."""
        value: dict[str, Any] = self._ask("GET", f"/v1/names/{name}")
        return value

    def set_name(self, name: str, build: str) -> dict[str, Any]:
        """Move a name."""
        value: dict[str, Any] = self._ask("PUT", f"/v1/names/{name}", json={"build": build})
        return value


def token_of(environment: Mapping[str, str]) -> str | None:
    """The token for a service: BLENDEX_TOKEN, or what the file BLENDEX_TOKEN_FILE holds.

    The file may be one for ``curl -H @file``, too.

    Raises:
        BlendexError: bad_request, when it cannot be read, or can be no token.
    """
    text = environment.get("BLENDEX_TOKEN")
    if text is None and (file := environment.get("BLENDEX_TOKEN_FILE")):
        try:
            text = Path(file).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise BlendexError(
                Code.BAD_REQUEST, f"the file of the token cannot be read ({type(error).__name__}).", file=file,
                next_step="Correct BLENDEX_TOKEN_FILE, or unset it.",
            ) from None  # fmt: skip
    if text is None:
        return None
    token = text.strip().removeprefix("Authorization: Bearer ").strip()
    if not token.replace("_", "").isalnum():
        raise BlendexError(Code.BAD_REQUEST, "this is no token.", next_step="A token is one word that begins with bx_.")
    return token


def _world(world: World) -> list[tuple[str, str]]:
    return [
        ("base", world.base or ""),
        *(("var", f"{name}={value}") for name, value in world.variables.items()),
        *(("env", f"{name}={value}") for name, value in world.env.items()),
        *(("view", f"{source}={target}") for source, target in world.view),
    ]


def _tar(submission: Submission, nested: dict[str, bytes]) -> bytes:
    """The blend with its nested blends, as a tar of its folder."""
    folder = os.path.dirname(submission.file)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        files = {submission.file: submission.text} | {os.path.abspath(path): text for path, text in nested.items()}
        for path, text in files.items():
            member = tarfile.TarInfo(os.path.relpath(path, folder))
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return stream.getvalue()
