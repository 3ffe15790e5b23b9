"""AIStore's SDK: the only module that touches it, and what its exceptions mean.

Versions from 1.26 to 2 differ in what they return and raise, so the shape that is used here is looked at when a child
first needs it. What the SDK does silently is undone or avoided: it cuts keys at ``#`` and ``?`` when it is given URLs,
so it gets buckets and keys; it retries for a minute and a half and repeats a target's URL, so it retries nothing; it
checks no range, checksum or member of a batch, so all of that is done over its raw bodies.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from blendex.storage.failures import StoreFailure, Trouble, of_status
from blendex.storage.profiles import Profile

PROVIDERS = {"ais": "ais", "s3": "aws", "gs": "gcp", "az": "azure", "oci": "oci"}
HEAD_PROPS = "size,version,checksum,custom"
LIST_PROPS = "name,size,version,checksum,cached"
# The server waits for other targets for up to 20 or 30 s before it goes on: a batch may be silent so long.
BATCH_SECONDS = 90.0
NO_RECURSION = 11
# An answer about an object has one of these at least.
_TOLD = {"ais-present", "ais-version", "ais-checksum-type", "ais-checksum-value", "ais-atime"}

T = TypeVar("T")


class Sdk:
    """One cluster.

    Raises:
        StoreFailure: SDK, when it is not installed or of a shape that is not known.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        try:
            import aistore
            from aistore.sdk import Client
        except ImportError:
            raise StoreFailure(Trouble.SDK, "The AIStore SDK is not installed.") from None
        self.version = str(getattr(aistore, "__version__", "?"))
        for name in ("aistore", "urllib3", "requests", "sdk"):
            # Their texts carry URLs with signatures; what is worth telling, failures tell.
            logging.getLogger(name).setLevel(logging.CRITICAL)
        check_shape(self.version)
        self._client = self._made(Client, profile.read_seconds)
        self._patient = self._made(Client, max(BATCH_SECONDS, profile.read_seconds) if profile.read_seconds >= 5 else
                                   profile.read_seconds)  # fmt: skip
        self._endpoint = urlsplit(profile.endpoint or "").netloc

    def _made(self, client: Any, read_seconds: float) -> Any:
        from aistore.sdk.retry_config import RetryConfig
        from tenacity import Retrying, stop_after_attempt
        from urllib3.util.retry import Retry

        profile = self._profile
        once = Retry(total=0, connect=0, read=0, redirect=0, status=0, status_forcelist=[])
        never = Retrying(stop=stop_after_attempt(1), reraise=True)
        cert: Any = (profile.client_cert, profile.client_key) if profile.client_key else profile.client_cert
        return self._guarded(
            lambda: client(
                str(profile.endpoint),
                skip_verify=not profile.verify,
                ca_cert=profile.ca,
                client_cert=cert,
                timeout=(profile.connect_seconds, read_seconds),
                retry_config=RetryConfig(http_retry=once, network_retry=never),
                token=profile.token or "",
                max_pool_size=profile.parallel + 4,
            )
        )

    def bucket(self, scheme: str, name: str) -> Any:
        """A bucket, by the scheme of its URL."""
        return self._client.bucket(name, provider=PROVIDERS[scheme])

    def head(self, scheme: str, bucket: str, key: str) -> Any:
        """Attributes of an object: size, obj_version, checksum_type, checksum_value, custom_metadata, present."""
        item = self.bucket(scheme, bucket).object(key)
        call = getattr(item, "head_v2", item.head)
        attributes = self._guarded(lambda: call(props=HEAD_PROPS))
        self._ours(attributes._response_headers)
        return attributes

    def get(self, scheme: str, bucket: str, key: str, byte_range: str | None) -> tuple[Any, Any]:
        """The raw response of a GET, and the attributes that it carries."""
        reader = self.bucket(scheme, bucket).object(key).get_reader(byte_range=byte_range)
        raw = self._guarded(reader.raw)
        try:
            self._ours(raw.headers)
        except StoreFailure:
            raw.close()
            raise
        return raw, reader.attributes

    def member(self, scheme: str, bucket: str, key: str, path: str, limit: int) -> bytes:
        """One member of an archive, by an individual GET."""
        from aistore.sdk.archive_config import ArchiveConfig

        reader = self.bucket(scheme, bucket).object(key).get_reader(archive_config=ArchiveConfig(archpath=path))
        raw = self._guarded(reader.raw)
        try:
            return bytes(self._guarded(lambda: raw.read(limit)))
        finally:
            raw.close()

    def page(self, scheme: str, bucket: str, prefix: str, after: str, more: str | None, folders: bool) -> Any:
        """One page of a listing, with ``entries``, ``continuation_token`` and ``uuid``."""
        from aistore.sdk.list_object_flag import ListObjectFlag

        uuid, _, continues = (more or "").partition(" ")
        return self._guarded(
            lambda: self.bucket(scheme, bucket).list_objects(
                prefix=prefix,
                props=LIST_PROPS,
                uuid=uuid,
                continuation_token=continues,
                flags=[ListObjectFlag(NO_RECURSION)] if folders else None,
                start_after=after if not more else "",
            )
        )

    def batch(self, scheme: str, bucket: str, entries: list[tuple[str, str | None]]) -> Any:
        """The raw body of a batch of (key, path of a member or None), a tar whose members come in this order."""
        from aistore.sdk.enums import Colocation

        def send() -> Any:
            request = self._patient.batch(
                bucket=self._patient.bucket(bucket, provider=PROVIDERS[scheme]),
                cont_on_err=True,
                streaming_get=True,
                colocation=Colocation.TARGET_AWARE if any(path for _, path in entries) else Colocation.NONE,
            )
            for key, path in entries:
                request.add(key, archpath=path)
            return request.get(raw=True)

        raw = self._guarded(send)
        if not str(raw.headers.get("Content-Type", "application/")).startswith("application/"):
            raw.close()
            raise StoreFailure(Trouble.WRONG, "a page instead of an archive")
        return raw

    def close(self) -> None:
        """End the connections that wait for more."""
        for client in (self._client, self._patient):
            manager = getattr(getattr(client, "_request_client", None), "session_manager", None)
            session = getattr(manager, "session", None)
            if session is not None:
                session.close()

    def _ours(self, headers: Mapping[str, str]) -> None:
        """An answer of AIStore has headers of its own; a page of something between us and it has none."""
        # Not any ais- header: the SDK adds names of its own to what it returns.
        if not _TOLD.intersection(name.lower() for name in headers):
            raise StoreFailure(Trouble.WRONG, "an answer without AIStore's headers, such as a page of a gateway")

    def _guarded(self, call: Callable[[], T]) -> T:
        import msgspec
        import requests
        from aistore.sdk.errors import APIRequestError
        from urllib3 import exceptions as lower

        try:
            return call()
        except StoreFailure:
            raise
        except APIRequestError as error:
            raise _of_api(error) from None
        except requests.exceptions.TooManyRedirects:
            raise StoreFailure(
                Trouble.SETTINGS, "its redirects go round in a circle; the endpoint must be the proxy's own address"
            ) from None
        except requests.exceptions.SSLError:
            raise StoreFailure(
                Trouble.SETTINGS, "its certificate is not trusted; set `ca` of the profile (AIS_CLIENT_CA)"
            ) from None
        except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ReadTimeout) as error:
            raise StoreFailure(Trouble.BROKEN, type(error).__name__) from None
        except requests.exceptions.ConnectionError as error:
            raise self._connection(error) from None
        except requests.exceptions.InvalidURL:
            raise StoreFailure(Trouble.SETTINGS, "its endpoint is no valid URL") from None
        except requests.exceptions.RequestException as error:
            raise StoreFailure(Trouble.BROKEN, type(error).__name__) from None
        except (lower.HTTPError, OSError) as error:
            raise StoreFailure(Trouble.BROKEN, type(error).__name__) from None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise StoreFailure(Trouble.WRONG, "an answer that is not AIStore's") from None
        except Exception as error:  # whatever else: no text of the SDK leaves this module, its class does
            name = type(error).__name__
            if type(error).__module__.startswith("pydantic"):
                raise StoreFailure(Trouble.WRONG, "an answer that is not AIStore's") from None
            raise StoreFailure(
                Trouble.SDK, f"AIStore SDK {self.version} is not supported by this build ({name})."
            ) from None

    def _connection(self, error: Any) -> StoreFailure:
        from urllib3 import exceptions as lower

        reason = getattr(error.args[0] if error.args else None, "reason", None)
        if not isinstance(reason, lower.NewConnectionError | lower.ConnectTimeoutError | lower.NameResolutionError):
            return StoreFailure(Trouble.BROKEN, type(error).__name__)
        asked = urlsplit(getattr(error.request, "url", None) or "").netloc
        if asked and asked != self._endpoint:
            return StoreFailure(
                Trouble.DOWN,
                f"its proxy redirects to {asked}, which this worker cannot reach; check the public addresses of the "
                "targets (HOSTNAME_LIST)",
            )
        return StoreFailure(Trouble.DOWN, type(reason).__name__)


def _of_api(error: Any) -> StoreFailure:
    status = int(getattr(error, "status_code", 0) or 0)
    # AIStore answers 404 for a missing bucket as well; nothing of its text is repeated, but the word tells them apart.
    if status == 404 and type(error).__name__ in ("ErrBckNotFound", "ErrRemoteBckNotFound"):
        return StoreFailure(Trouble.MISSING, "HTTP 404: no such bucket", status=404)
    return of_status(status)


def check_shape(version: str) -> None:
    """Look at the parts of the SDK that are used.

    Raises:
        StoreFailure: SDK, when one is missing or different.
    """
    try:
        from aistore.sdk import Client
        from aistore.sdk.batch.batch import Batch
        from aistore.sdk.batch.types import MossIn, MossOut
        from aistore.sdk.bucket import Bucket
        from aistore.sdk.obj.object import Object
        from aistore.sdk.obj.object_reader import ObjectReader

        known = (
            {"retry_config", "token", "max_pool_size", "ca_cert"} <= _parameters(Client.__init__)
            and {"archpath", "start", "length"} <= _parameters(Batch.add)
            and {"raw"} <= _parameters(Batch.get)
            and {"obj_name", "archpath", "start"} <= set(MossIn.model_fields)
            and {"obj_name", "bucket", "err_msg", "size"} <= set(MossOut.model_fields)
            and {"byte_range", "archive_config"} <= _parameters(Object.get_reader)
            and {"prefix", "continuation_token", "start_after"} <= _parameters(Bucket.list_objects)
            and {"props"} <= _parameters(getattr(Object, "head_v2", Object.head))
            and hasattr(ObjectReader, "raw")
            and isinstance(ObjectReader.attributes, property)
        )
    except (ImportError, AttributeError):
        known = False
    if not known:
        raise StoreFailure(Trouble.SDK, f"AIStore SDK {version} has a shape that this build does not know.")


def _parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)
