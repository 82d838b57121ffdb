"""Reasons why a hub model is unavailable: huggingface_hub's exceptions as sentences."""

import errno
import os
from typing import TypeVar

from workers.contract.wire import hub_files
from workers.trainer.fetching import cache, endpoint

E = TypeVar("E", bound=Exception)

_DISK_ERRORS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ENOTDIR}


class ModelUnavailable(Exception):
    """The model is unavailable; the message is for the user who named it."""


def is_temporary(error: BaseException) -> bool:
    """Check whether a retry may succeed: a temporary problem of the hub or the network."""
    import httpx

    status = _status(error)
    if status is not None:
        return status in (408, 429) or status >= 500
    broken = caused_by(error, httpx.TransportError)
    return broken is not None and not isinstance(broken, httpx.ProxyError)


def sentence(error: BaseException, model: str, revision: str | None) -> str:
    """Explain an error of the hub, the network or the disk in a sentence; "" for errors of other kinds."""
    from huggingface_hub import get_token
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    hub, status = endpoint(), _status(error)
    if isinstance(error, GatedRepoError):
        return hub_files.gated(model, hub, has_token=bool(get_token()))
    if isinstance(error, RevisionNotFoundError):
        return hub_files.no_revision(model, revision or hub_files.NEWEST, hub)
    if status == 401 and not isinstance(error, RepositoryNotFoundError):
        return hub_files.bad_token(hub)
    if isinstance(error, RepositoryNotFoundError):
        return hub_files.missing(model, hub)
    if isinstance(error, HFValidationError):
        return f"{model!r} is not a valid name for a model on the hub: {first_line(error)}"
    if caused_by(error, OfflineModeIsEnabled):
        return f"{model} is not complete in this host's cache, and HF_HUB_OFFLINE keeps it from asking {hub}."
    if status is not None:
        return f"{hub} answered with status {status} when asked for {model}: start the run again later."
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"The disk became full while {model} was fetched into {cache()}: free some, and start the run again."
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        return f"{model} could not be written into {cache()}: {os.strerror(error.errno)}."
    return _network_sentence(error, model, hub)


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def gigabytes(size: int) -> str:
    number, unit = (size / 1e9, "GB") if size >= 1e8 else (size / 1e6, "MB")
    return f"{number:,.0f} {unit}" if number >= 10 else f"{number:.1f} {unit}"


def _network_sentence(error: BaseException, model: str, hub: str) -> str:
    import httpx

    broken = caused_by(error, httpx.TransportError)
    if broken is None:
        return ""
    if isinstance(broken, httpx.ReadTimeout | httpx.ReadError | httpx.RemoteProtocolError):
        return f"{hub} stopped sending {model} ({first_line(broken)}): start the run again later."
    return f"{hub} can't be reached from this host ({first_line(broken)}), whose cache has no complete copy of {model}."


def _status(error: BaseException) -> int | None:
    from huggingface_hub.errors import HfHubHTTPError

    answer = caused_by(error, HfHubHTTPError)
    return answer.response.status_code if answer is not None else None


def caused_by(error: BaseException, *types: type[E]) -> E | None:
    """Find the error's cause of one of these types, since huggingface_hub wraps errors; None: there is none."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, types):
        cause = cause.__cause__
    return cause
