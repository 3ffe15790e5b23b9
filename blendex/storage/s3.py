"""S3 by boto3: single requests, and what its exceptions mean.

boto3 tries nothing again here (one attempt): tries, waits and resumption are the same for all stores. So are checksums:
boto3 compares when a body is read beyond its end, and bodies are read to their length. A range names the
ETag that it must be of, so that an object put meanwhile answers 412. The token is ETag and Last-Modified, which
a listing tells as well as a HEAD; a version number is in no listing, and an overwritten object has another of the two.
"""

from __future__ import annotations

import logging
import os
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from blendex.storage.checksums import COMPOSITE
from blendex.storage.driver import Body, Listed, parse_range, token
from blendex.storage.failures import StoreFailure, Trouble, of_status
from blendex.storage.interface import Stat
from blendex.storage.profiles import Place, Profile

PAGE = 1000
_CHECKSUMS = {
    "ChecksumCRC64NVME": "crc64nvme", "ChecksumCRC32C": "crc32c", "ChecksumCRC32": "crc32", "ChecksumSHA1": "sha1",
    "ChecksumSHA256": "sha256", "ChecksumSHA512": "sha512", "ChecksumMD5": "md5", "ChecksumXXHASH64": "xxhash2",
    "ChecksumXXHASH3": "xxhash3", "ChecksumXXHASH128": "xxhash128",
}  # fmt: skip


def _client(profile: Profile) -> Any:
    try:
        import boto3
        import botocore
        from botocore.config import Config
    except ImportError:
        raise StoreFailure(Trouble.SDK, "boto3 is not installed.") from None
    for name in ("boto3", "botocore", "urllib3", "s3transfer"):
        # Their texts carry URLs; what is worth telling, failures tell.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    os.environ.update(profile.environment)
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "false" if profile.endpoint is None else "true")
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 1},
        connect_timeout=profile.connect_seconds,
        read_timeout=profile.read_seconds,
        max_pool_connections=max(10, profile.parallel + 4),
        signature_version=botocore.UNSIGNED if profile.anonymous else None,
        s3={"addressing_style": profile.addressing},
        response_checksum_validation="when_required",
        request_checksum_calculation="when_required",
    )
    session = boto3.session.Session(
        aws_access_key_id=profile.access_key,
        aws_secret_access_key=profile.secret_key,
        aws_session_token=profile.session_token,
        region_name=profile.region or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1",
    )
    return session.client(
        "s3",
        endpoint_url=profile.endpoint,
        config=config,
        verify=(profile.ca or None) if profile.verify else False,
    )


class S3Driver:
    """One S3 endpoint."""

    lists = lists_from = True

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._client = _client(profile)

    def head(self, place: Place) -> Stat:
        """One HEAD."""
        answer = self._call("head_object", place, Bucket=place.bucket, Key=place.key, ChecksumMode="ENABLED")
        return _stat(place, int(answer["ContentLength"]), answer)

    def get(self, place: Place, start: int, stop: int | None, expect: Stat | None) -> Body:
        """One GET, of a range where less than all is wanted."""
        arguments: dict[str, Any] = {"Bucket": place.bucket, "Key": place.key}
        if start or stop is not None:
            arguments["Range"] = f"bytes={start}-" if stop is None else f"bytes={start}-{stop - 1}"
        else:
            arguments["ChecksumMode"] = "ENABLED"
        if expect is not None and (etag := _etag(expect)):
            arguments["IfMatch"] = f'"{etag}"'
        return _S3Body(place, self._call("get_object", place, **arguments))

    def page(self, place: Place, after: str, more: str | None, folders: bool) -> Listed:
        """One page of a listing below the key of ``place``."""
        arguments: dict[str, Any] = {"Bucket": place.bucket, "Prefix": place.key, "MaxKeys": PAGE}
        if more is not None:
            arguments["ContinuationToken"] = more
        elif after:
            arguments["StartAfter"] = after
        if folders:
            arguments["Delimiter"] = "/"
        answer = self._call("list_objects_v2", place, **arguments)
        stats: list[tuple[str, Stat | None]] = [
            (item["Key"], _stat(place._replace(key=item["Key"]), int(item["Size"]), item))
            for item in answer.get("Contents", ())
        ]
        names = [item["Prefix"] for item in answer.get("CommonPrefixes", ())]
        return Listed(stats, names, answer.get("NextContinuationToken") if answer.get("IsTruncated") else None)

    def close(self) -> None:
        """End the connections."""
        self._client.close()

    def _call(self, operation: str, place: Place, **arguments: Any) -> dict[str, Any]:
        from botocore import exceptions as wrong

        try:
            answer: dict[str, Any] = getattr(self._client, operation)(**arguments)
        except wrong.ClientError as error:
            raise _failure(error.response) from None
        except (wrong.NoCredentialsError, wrong.PartialCredentialsError, wrong.CredentialRetrievalError):
            raise StoreFailure(Trouble.DENIED, "no credentials") from None
        except wrong.SSLError:
            raise StoreFailure(
                Trouble.SETTINGS, "its certificate is not trusted; set `ca` of the profile to the file of its issuer"
            ) from None
        except (wrong.EndpointConnectionError, wrong.ConnectTimeoutError, wrong.ProxyConnectionError) as error:
            raise StoreFailure(Trouble.DOWN, type(error).__name__) from None
        except (wrong.HTTPClientError, wrong.ResponseStreamingError, wrong.IncompleteReadError) as error:
            raise StoreFailure(Trouble.BROKEN, type(error).__name__) from None
        except wrong.ResponseParserError:
            raise StoreFailure(Trouble.WRONG, "an answer that is not S3's") from None
        except (wrong.BotoCoreError, ValueError) as error:
            raise StoreFailure(Trouble.SETTINGS, f"boto3 refuses the request ({type(error).__name__})") from None
        return answer


def _failure(response: dict[str, Any]) -> StoreFailure:
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code = str(response.get("Error", {}).get("Code", ""))
    if code in ("SlowDown", "RequestLimitExceeded", "Throttling", "TooManyRequests"):
        return StoreFailure(Trouble.BUSY, f"HTTP {status}", status=status, wait=_wait(response))
    if code in ("RequestTimeTooSkewed",):
        return StoreFailure(Trouble.SETTINGS, "the clocks of this machine and the store differ", status=status)
    if code in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"):
        return StoreFailure(Trouble.DENIED, f"HTTP {status}", status=status)
    if status in (301, 302, 307, 308):
        return StoreFailure(
            Trouble.SETTINGS,
            "it redirects; set `region` of the profile, or its kind to aistore where this is an AIStore",
            status=status,
        )
    return of_status(status, _wait(response))


def _wait(response: dict[str, Any]) -> float | None:
    value = response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("retry-after", "")
    return float(value) if value.isdigit() else None


def _etag(stat: Stat) -> str:
    return unquote(stat.token.split(":")[3])


def _stat(place: Place, size: int, answer: dict[str, Any]) -> Stat:
    etag = str(answer.get("ETag") or "").strip('"')
    modified = answer.get("LastModified")
    # Whole seconds: a listing may tell milliseconds where a HEAD does not.
    seconds = str(int(modified.timestamp())) if isinstance(modified, datetime) else ""
    checksum = next(((kind, str(answer[name])) for name, kind in _CHECKSUMS.items() if answer.get(name)), None)
    if checksum is not None and (answer.get("ChecksumType") == "COMPOSITE" or "-" in checksum[1]):
        checksum = (COMPOSITE, checksum[1])  # of the checksums of an upload's parts
    return Stat(
        address=place.address,
        size=size,
        token=token(size, "s3", etag, seconds if etag else ""),
        mtime_ns=0,
        changed_ns=0,
        weak=not etag,
        checksum=checksum,
    )


class _S3Body:
    def __init__(self, place: Place, answer: dict[str, Any]) -> None:
        self._stream = answer["Body"]
        self.status = int(answer["ResponseMetadata"]["HTTPStatusCode"])
        self.content_range = answer.get("ContentRange")
        self.length = int(answer["ContentLength"]) if answer.get("ContentLength") is not None else None
        found = parse_range(self.content_range) if self.status == 206 else None
        self.total = found[2] if found else self.length or 0
        self.stat = _stat(place, self.total, answer)
        self._left = self.length

    def read(self, count: int) -> bytes:
        """Some bytes; raises StoreFailure when the body broke."""
        from botocore import exceptions as wrong
        from urllib3.exceptions import HTTPError

        try:
            data: bytes = self._stream.read(count)
        except (wrong.BotoCoreError, HTTPError, OSError) as error:
            raise StoreFailure(Trouble.BROKEN, type(error).__name__) from None
        return data

    def close(self) -> None:
        """Let the connection go."""
        self._stream.close()
