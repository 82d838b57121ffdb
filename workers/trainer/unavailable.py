"""Reasons why a hub model is unavailable: sentences for huggingface_hub's exceptions."""

import errno
import os
from typing import TypeVar

from workers.contract.wire import hub_files
from workers.trainer.fetching import cache, endpoint

E = TypeVar("E", bound=Exception)

_DISK_ERRORS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ENOTDIR}


class ModelUnavailable(Exception):
    """Raised when a model is unavailable; the message is for the user who chose it."""


def is_temporary(error: BaseException) -> bool:
    """Return whether a retry may succeed because the problem of the hub or the network is temporary."""
    import httpx

    status = _status(error)
    if status is not None:
        return status in (408, 429) or status >= 500
    broken = caused_by(error, httpx.TransportError)
    return broken is not None and not isinstance(broken, httpx.ProxyError)


def sentence(error: BaseException, model: str, revision: str | None) -> str:
    """Return a sentence that explains an error of the hub, the network or the disk, or "" for other errors."""
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
        return hub_files.gated_message(model, hub, has_token=bool(get_token()))
    if isinstance(error, RevisionNotFoundError):
        return hub_files.missing_revision_message(model, revision or hub_files.NEWEST, hub)
    if status == 401 and not isinstance(error, RepositoryNotFoundError):
        return hub_files.invalid_token_message(hub)
    if isinstance(error, RepositoryNotFoundError):
        return hub_files.missing_message(model, hub)
    if isinstance(error, HFValidationError):
        return f"{model!r} is not a valid name for a model on the hub: {first_line(error)}"
    if caused_by(error, OfflineModeIsEnabled):
        return f"{model} is not complete in this host's cache, and HF_HUB_OFFLINE prevents a download from {hub}."
    if status is not None:
        return f"{hub} returned status {status} when {model} was requested: start the run again later."
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"The disk filled up while {model} was fetched into {cache()}: free some space and start the run again."
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        return f"{model} could not be written to {cache()}: {os.strerror(error.errno)}."
    return _network_sentence(error, model, hub)


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def gigabytes(size: int) -> str:
    number, unit = (size / 1e9, "GB") if size >= 1e8 else (size / 1e6, "MB")
    return f"{number:,.0f} {unit}" if number >= 10 else f"{number:.1f} {unit}"


def _network_sentence(error: BaseException, model: str, hub: str) -> str:
    import httpx

    cause = caused_by(error, httpx.TransportError)
    if cause is None:
        return ""
    if isinstance(cause, httpx.ReadTimeout | httpx.ReadError | httpx.RemoteProtocolError):
        return f"{hub} stopped sending {model} ({first_line(cause)}): start the run again later."
    return f"{hub} can't be reached from this host ({first_line(cause)}), whose cache has no complete copy of {model}."


def _status(error: BaseException) -> int | None:
    from huggingface_hub.errors import HfHubHTTPError

    cause = caused_by(error, HfHubHTTPError)
    return cause.response.status_code if cause is not None else None


def caused_by(error: BaseException, *types: type[E]) -> E | None:
    """Return the error or the first of its causes with one of these types, else None. huggingface_hub wraps its
    errors."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, types):
        cause = cause.__cause__
    return cause
