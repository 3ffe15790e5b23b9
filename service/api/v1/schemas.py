"""Shapes and examples for the API's description."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

ID = "0bc8k2v9q7x4m1n5t3r6w0z8yd"
KEY = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


class Problem(BaseModel):
    """RFC 9457, with a code from a closed list and what to do next."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:blendex:error:unknown_type"])
    title: str = Field(examples=["Unknown type"])
    status: int = Field(examples=[422])
    code: str = Field(examples=["unknown_type"])
    detail: str
    file: str | None = None
    line: int | None = None
    byte: int | None = None
    next_step: str | None = None
    instance: str


class BuildLinks(BaseModel):
    """Addresses of what belongs to a build; null for what is not there yet."""

    self: str
    path: str
    events: str
    problems: str
    findings: str
    log: str
    blend: str | None
    blend_diff: str | None
    mirror: str | None


class Build(BaseModel):
    """A build, flat enough for ``jq -r .path``."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "id": ID,
                    "state": "ready",
                    "path": f"/data/blendex/mirrors/{KEY}",
                    "mirror": KEY,
                    "sources": 17,
                    "done": 17,
                    "reused": 0,
                    "eta_seconds": None,
                    "error": None,
                    "names": ["granary-v3"],
                    "labels": {"project": "granary"},
                    "version": 7,
                    "links": {
                        "self": f"/v1/builds/{ID}",
                        "path": f"/v1/builds/{ID}/path",
                        "events": f"/v1/builds/{ID}/events",
                        "problems": f"/v1/builds/{ID}/problems",
                        "findings": f"/v1/builds/{ID}/findings",
                        "log": f"/v1/builds/{ID}/log",
                        "blend": f"/v1/builds/{ID}/blend",
                        "blend_diff": f"/v1/builds/{ID}/blend.diff",
                        "mirror": f"/v1/mirrors/{KEY}",
                    },
                }
            ]
        },
    )

    id: str
    state: str
    path: str | None
    links: BuildLinks


class Builds(BaseModel):
    """A page of builds, newest first; ``next`` is the address of the following one."""

    builds: list[Build]
    next: str | None


class Line(BaseModel):
    """A line in the log of a build: the event and its words; what belongs to the event stands beside."""

    model_config = ConfigDict(extra="allow")

    at: float
    event: str
    says: str


class Log(BaseModel):
    """The last lines, the newest first."""

    id: str
    log: list[Line]


class Preview(BaseModel):
    """What a submission would come to."""

    model_config = ConfigDict(extra="allow")

    sources: int
    bytes: int
    reused: int
    mirror: str | None
    path: str | None


class Mirror(BaseModel):
    """A mirror."""

    model_config = ConfigDict(extra="allow")

    key: str
    state: str
    path: str | None
    links: dict[str, str]


class Mirrors(BaseModel):
    """A page of mirrors, newest first."""

    mirrors: list[Mirror]
    next: str | None


class Hold(BaseModel):
    """What keeps a mirror."""

    kind: str = Field(description="name, pin, job, chain, or build: one that runs and publishes it.")
    holder: str = Field(examples=["4711"])
    since: float | None
    until: float | None = Field(description="Seconds since the epoch; null: until it is released.")
    reason: str | None


class Holds(BaseModel):
    """All that keeps a mirror."""

    mirror: str
    state: str = Field(description="published, condemned (nobody holds it), collecting or collected.")
    used_at: float | None
    may_go_at: float | None = Field(description="When a condemned mirror may be collected, unless somebody wants it.")
    holds: list[Hold]


class Name(BaseModel):
    """A name and where it points."""

    model_config = ConfigDict(extra="allow")

    name: str
    build: str
    path: str | None
    links: dict[str, str]


class Names(BaseModel):
    """A page of names, in order."""

    names: list[Name]
    next: str | None


class Sources(BaseModel):
    """What is known of a path, under each recipe that it was read by, and who uses it."""

    path: str
    sources: list[dict[str, Any]] = Field(description="`contents`: what it had when, and the mirrors that hold that.")
    uses: list[dict[str, Any]] = Field(description="Builds that name it: file, owner, labels, dataset, mirror, names.")
    builds: int = Field(description="How many builds were looked through, the newest first.")
    whole: bool = Field(description="False when time was over before all of them were.")


class Worker(BaseModel):
    """A process that claims units."""

    model_config = ConfigDict(extra="allow")

    id: str
    state: str = Field(description="working, draining, or silent: it missed its heartbeats.")
    classes: list[str]
    slots: int
    busy: int
    budget_bytes: int = Field(description="Of the limit that its children share with those of other workers.")
    predicted_bytes: int = Field(description="Promised to what runs here.")
    used_bytes: int = Field(description="What its children have.")
    waiting: str | None = Field(description="Why it takes nothing though there is work.")
    in_hand: list[dict[str, Any]] = Field(
        description="Each unit that runs here with its work and the source in hand, as of the last heartbeat."
    )


class Workers(BaseModel):
    """All of them."""

    workers: list[Worker]
    observations: list[dict[str, Any]] = Field(description="Memory predicted and seen, by sort of source.")


class TokenOf(BaseModel):
    """A token, without what lets anybody in. Times are seconds since the epoch."""

    id: int
    label: str
    owner: str
    team: str
    scope: str
    created_at: float
    expires_at: float
    revoked_at: float | None
    used_at: float | None


class MadeToken(TokenOf):
    """A token that was made now."""

    token: str = Field(description="What is shown to the service. It is told here and never again.")


class Tokens(BaseModel):
    """A page of tokens, newest first."""

    tokens: list[TokenOf]
    next: str | None


class TeamOf(BaseModel):
    """A team, with what it may read."""

    name: str
    roots: list[str]
    stores: dict[str, list[str]] = Field(description="Of each endpoint profile the patterns of buckets.")
    views: list[list[str]]
    version: int
    updated_at: float


class Teams(BaseModel):
    """All of them."""

    teams: list[TeamOf]


class DeedOf(BaseModel):
    """Something that was changed."""

    id: int
    at: float
    owner: str
    team: str
    token: int | None
    action: str
    object: str
    request: str
    address: str


class Deeds(BaseModel):
    """A page of what was changed, newest first; ``next``: to be given as before."""

    audit: list[DeedOf]
    next: int | None


class Usage(BaseModel):
    """What a team uses, and what it may; null: any number."""

    team: str
    usage: dict[str, int]
    quota: dict[str, int | None]


TEXT: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}, "example": f"/data/blendex/mirrors/{KEY}\n"}}


def _problem(description: str, *, text: bool = True) -> dict[str, Any]:
    shape = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": description, "content": shape | (TEXT if text else {})}


FULL = _problem("The service is full; Retry-After says when to ask again.")
OVER = _problem("The team would have more than its quota.")
#: what an address that answers "where is it?" may say
PATH_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Ready: exactly one line, the absolute path (or shell lines, by format).",
        "content": TEXT | {"application/json": {"schema": {"type": "object"}}},
    },
    304: {"description": "Unchanged, by If-None-Match."},
    409: _problem("Failed, cancelled, or not the expected mirror."),
    410: _problem("Collected; post the blend again."),
    503: _problem("Building; Retry-After says when to ask again."),
}

BLEND = """\
- type: nemo_tarred
  manifest_filepath: ${data_blend_dir}/nemo_tarred/manifest__OP_0..3_CL_.json
  tarred_audio_filepaths: ${data_blend_dir}/nemo_tarred/audio__OP_0..3_CL_.tar
  weight: 0.4
- type: lhotse_shar
  shar_path: ${data_blend_dir}/shar
  weight: 0.6
"""

#: the body of a submission
SUBMISSION: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/yaml": {
                "schema": {"type": "string"},
                "examples": {"a list of entries": {"value": BLEND}},
            },
            "application/x-tar": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {"path": {"type": "string"}},
                    "required": ["path"],
                    "additionalProperties": False,
                },
                "examples": {"a blend inside an allowed root": {"value": {"path": "/data/blends/granary.yaml"}}},
            },
        },
    }
}


#: the body of a lint
LINT: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": SUBMISSION["requestBody"]["content"]
        | {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "config": {"type": "string", "format": "binary"},
                        "blend": {"type": "array", "items": {"type": "string", "format": "binary"}},
                        "launcher": {"type": "string", "format": "binary"},
                        "facts": {"type": "string"},
                        "baseline": {"type": "string"},
                    },
                    "required": ["config"],
                    "additionalProperties": False,
                }
            }
        },
    }
}

#: what a lint answers
LINTED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "What was found, and the patch; or SARIF, or a zip, by output=.",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "ready": {"type": "boolean"},
                        "reports": {"type": "array", "items": {"type": "object"}},
                    },
                    "required": ["format", "version", "ready", "reports"],
                }
            },
            "application/sarif+json": {"schema": {"type": "object"}},
            "application/zip": {"schema": {"type": "string", "format": "binary"}},
        },
    },
    422: _problem("The text cannot be read at all.", text=False),
    429: _problem("Others are being linted; Retry-After says when to ask again.", text=False),
}


def json_body(required: tuple[str, ...], optional: tuple[str, ...], example: dict[str, str]) -> dict[str, Any]:
    """The description of a small JSON body."""
    schema = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in (*required, *optional)},
        "required": list(required),
        "additionalProperties": False,
    }
    content = {"application/json": {"schema": schema, "example": example}}
    return {"requestBody": {"required": bool(required), "content": content}}


def content(kind: str, description: str) -> dict[int | str, dict[str, Any]]:
    """An answer that is no JSON of ours."""
    # Tools parse these before they look at a schema: YAML into its value, a stream into its events.
    parsed = {"application/yaml": {"type": ["array", "object"]}, "text/event-stream": {}}
    schema: dict[str, Any] = parsed.get(kind, {"type": "string"})
    return {200: {"description": description, "content": {kind: {"schema": schema}}}}
