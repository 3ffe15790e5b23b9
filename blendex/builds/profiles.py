"""The endpoint profiles of a process: from its settings, and on a user's own command line from its environment."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from blendex.errors import BlendexError, Code
from blendex.settings import Settings, StoreSettings
from blendex.storage.profiles import Profile

# One of these in the environment says that its user has to do with S3.
_SAID = (
    "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ROLE_ARN",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)  # fmt: skip


def profiles_for(settings: Settings, own: bool, environment: Mapping[str, str] | None = None) -> tuple[Profile, ...]:
    """The profiles, in the order in which they are asked for a URL.

    Args:
        settings: those of the process.
        own: a user's own command line: without profiles in the settings, the variables that training reads say where
            objects are (``AIS_ENDPOINT``, ``AWS_…``), and every bucket may be read.
        environment: instead of that of the process.

    Raises:
        BlendexError: store_settings.
    """
    environment = os.environ if environment is None else environment
    described = {name: item.model_copy() for name, item in settings.stores.items()}
    if settings.stores_file is not None:
        described |= _from_file(settings.stores_file)
    if described:
        return tuple(_profile(name, item, environment) for name, item in described.items())
    return _of_environment(environment) if own else ()


def _from_file(path: Path) -> dict[str, StoreSettings]:
    try:
        tree = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
        items = {} if tree is None else tree
        return {str(name): StoreSettings.model_validate(item) for name, item in items.items()}
    except OSError as error:
        raise _bad(path, f"cannot be read ({error.strerror})") from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise _bad(path, f"is wrong at {where}: {first['msg']}") from None
    except (yaml.YAMLError, AttributeError):
        raise _bad(path, "is no YAML of profiles by name") from None


def _bad(path: Path, what: str) -> BlendexError:
    return BlendexError(
        Code.STORE_SETTINGS,
        f"the stores file {what}.",
        file=str(path),
        next_step="Correct it; docs/stores.md has an example.",
    )


def _secret(name: str, field: str, given: Any, environment: Mapping[str, str]) -> str | None:
    """A secret: as it stands, from a variable (``env:NAME``) or from a file (``file:/path``)."""
    text: str | None = given.get_secret_value() if given is not None else None
    if text is None or not text.startswith(("env:", "file:")):
        return text
    how, _, where = text.partition(":")
    if how == "env":
        if where not in environment:
            raise BlendexError(
                Code.STORE_SETTINGS,
                f"{field} of the endpoint profile {name} is to come from the variable {where}, which is not set.",
                next_step="Set it for every process of the service.",
            )
        return environment[where]
    try:
        return Path(where).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise BlendexError(
            Code.STORE_SETTINGS,
            f"{field} of the endpoint profile {name} cannot be read from its file ({error.strerror}).",
            file=where,
            next_step="Mount the secret, readable for this process.",
        ) from None


def _profile(name: str, item: StoreSettings, environment: Mapping[str, str]) -> Profile:
    values = item.model_dump(exclude={"access_key", "secret_key", "session_token", "token", "mode"})
    for field in ("access_key", "secret_key", "session_token", "token"):
        values[field] = _secret(name, field, getattr(item, field), environment)
    values["mode"] = item.mode or training_mode(environment)
    values["environment"] = _aws(environment) if item.kind == "s3" and not item.access_key else {}
    return Profile.from_dict(values | {"name": name})


def _aws(environment: Mapping[str, str]) -> dict[str, str]:
    """What the credential chain of boto3 looks at."""
    return {key: value for key, value in environment.items() if key.startswith("AWS_")}


def _true(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").lower() == "true"


def training_mode(environment: Mapping[str, str]) -> str:
    """How whole objects are read from AIStore, by the switches of training and with their meaning.

    ``USE_AIS_INDIVIDUAL_GETS`` alone means nothing to training, so it means nothing here.

    Raises:
        BlendexError: store_settings, ``AIS_MODE`` is another word than those that it may be.
    """
    said = environment.get("AIS_MODE", "")
    if said in ("auto", "batch", "individual"):
        return said
    if said:
        raise BlendexError(
            Code.STORE_SETTINGS,
            f"AIS_MODE is {said}; it may be auto, batch or individual.",
            next_step="Correct it in the environment, or leave it unset: training's own switches decide then.",
        )
    if not _true(environment, "USE_AIS_GET_BATCH"):
        return "auto"
    return "individual" if _true(environment, "USE_AIS_INDIVIDUAL_GETS") else "batch"


def _name(kind: str, endpoint: str) -> str:
    """Tokens belong to addresses: another endpoint in the environment is another profile."""
    return f"env-{hashlib.sha256(f'{kind} {endpoint}'.encode()).hexdigest()[:8]}"


def _of_environment(environment: Mapping[str, str]) -> tuple[Profile, ...]:
    """One profile as training would read: AIStore for everything when its endpoint is set, else S3."""
    mirrors = tuple(item for item in environment.get("LHOTSE_S3_LOCAL_MIRROR_ROOTS", "").split(os.pathsep) if item)
    if endpoint := environment.get("AIS_ENDPOINT"):
        skip = _true(environment, "AIS_SKIP_VERIFY_CRT") or _true(environment, "AIS_SKIP_VERIFY")
        described: dict[str, Any] = {
            "name": _name("aistore", endpoint), "kind": "aistore", "endpoint": endpoint, "buckets": ("*",),
            "token": environment.get("AIS_AUTHN_TOKEN"), "ca": environment.get("AIS_CLIENT_CA"),
            "client_cert": environment.get("AIS_CRT"), "client_key": environment.get("AIS_CRT_KEY"),
            "verify": not skip, "mode": training_mode(environment), "local_mirrors": mirrors,
        }  # fmt: skip
    else:
        said = mirrors or any(name in environment for name in _SAID)
        if not said and not Path(environment.get("HOME", "/"), ".aws").is_dir():
            return ()
        address = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
        described = {
            "name": _name("s3", address or ""), "kind": "s3", "buckets": ("*",), "local_mirrors": mirrors,
            "endpoint": address,
            "environment": _aws(environment), "ca": environment.get("AWS_CA_BUNDLE"),
        }  # fmt: skip
    return (Profile.from_dict(described),)
