"""Push of a model's files and its card to the hub in one commit: either all of them arrive, or none.

Files are uploaded through the hub's HTTP API. A repository that the push has created but can't fill is deleted again.
"""

import io
import json
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

from workers.contract.run.jobs import PushSettings
from workers.contract.wire.model_archive import CARD, WEIGHTS, model_files
from workers.trainer.configuration.spec import SpecError
from workers.trainer.jobs import JobStopped, ModelJob, megabytes
from workers.trainer.unavailable import caused_by, first_line, gigabytes

MERGED_FROM = "merged_from.json"
"""Name of a file with paths of this host, which isn't pushed; the card has the same information."""
BASE_KEYS = ("base_model_name_or_path", "_name_or_path", "name_or_path")
"""Keys of JSON files that may hold the base model's folder on this host."""
MAX_JSON_BYTES = 1 << 20
HUB_ERRORS = (HfHubHTTPError, httpx.HTTPError, ValueError, OSError)
"""Errors of the hub and the network; ValueError is for a card that the hub rejects."""
TOKEN = "HF_TOKEN"  # noqa: S105  # its name
ENTER_ANOTHER = "An admin can enter another token under Settings, Secrets, as HF_TOKEN."


def run(job: ModelJob, settings: PushSettings) -> None:
    """Push the model. Raises SpecError if it can't be pushed, and JobStopped after a stop, once the push has been
    undone."""
    paths = [path for path in model_files(job.checkpoint) if path.name != MERGED_FROM]
    if not any(path.suffix == WEIGHTS for path in paths):
        raise SpecError(f"{job.checkpoint.name} has no weights in safetensors format, so it can't be pushed.")
    api = HfApi(token=os.environ.pop(TOKEN, ""))
    with ExitStack() as open_files:
        upload = Upload(job)
        job.stage("reading the files")
        operations = [_operation(path, settings, upload, open_files) for path in paths]
        operations.append(CommitOperationAdd(CARD, settings.card.encode()))
        job.stage(f"contacting {api.endpoint}")
        is_new = _find_or_create_repository(api, settings)
        if is_new:
            job.result(
                f"{settings.repository} was created on {api.endpoint} and is empty until the upload is complete."
            )
        with _undo_on_failure(job, api, settings, is_new=is_new):
            commit = _commit(job, api, settings, operations, upload)
    url = f"{api.endpoint}/{settings.repository}"
    facts = {"url": url, "commit": commit.oid, "repository": settings.repository, "bytes": upload.size}
    job.progress(job.total)
    job.result(f"Pushed {gigabytes(upload.size)} to {url}, commit {commit.oid[:12]}.", **facts)


class Upload:
    """Count of the uploaded bytes of all files. A requested stop interrupts the upload."""

    def __init__(self, job: ModelJob) -> None:
        self._job = job
        self._sent: dict[str, int] = {}
        self._lock = threading.Lock()
        self.begun = False
        """True once files are uploaded, and not only read for their checksums."""
        self.size = 0

    def begin(self) -> None:
        self.begun = True
        self.check_stop()
        self._job.begin(megabytes(self.size))

    def check_stop(self) -> None:
        if self._job.stop_requested:
            raise JobStopped

    def report_read(self, name: str, position: int) -> None:
        """Report that a file was read up to `position`; parts sent again are counted once. Raises JobStopped if a stop
        has been requested."""
        self.check_stop()
        if self.begun:
            with self._lock:
                self._sent[name] = max(position, self._sent.get(name, 0))
                self._job.progress(min(megabytes(sum(self._sent.values())), self._job.total - 1))


class _CountedFile(io.BufferedReader):
    """File of the model that reports how far it has been read."""

    def __init__(self, path: Path, upload: Upload) -> None:
        super().__init__(io.FileIO(path))
        self._name, self._upload = path.name, upload

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(-1 if size is None else size)
        self._upload.report_read(self._name, self.tell())
        return content


# --- the files ---------------------------------------------------------------------------------------------------


def _operation(path: Path, settings: PushSettings, upload: Upload, open_files: ExitStack) -> CommitOperationAdd:
    content = _without_this_host(path, settings.base)
    upload.size += path.stat().st_size if content is None else len(content)
    if content is not None:
        return CommitOperationAdd(path.name, content)
    return CommitOperationAdd(path.name, open_files.enter_context(_CountedFile(path, upload)))


def _without_this_host(path: Path, base: str) -> bytes | None:
    """Return a JSON file's content with the base's name instead of a folder of this host, or None if it has no
    folder."""
    if path.suffix != ".json" or path.stat().st_size > MAX_JSON_BYTES:
        return None
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise SpecError(f"{path.name} can't be read: {error}") from error
    values = document if isinstance(document, dict) else {}
    path_keys = [key for key in BASE_KEYS if str(values.get(key)).startswith(("/", "~", "."))]
    if not path_keys:
        return None
    return (json.dumps({**document, **dict.fromkeys(path_keys, base)}, indent=2, ensure_ascii=False) + "\n").encode()


# --- the repository ----------------------------------------------------------------------------------------------


def _find_or_create_repository(api: HfApi, settings: PushSettings) -> bool:
    """Find or create the repository; return whether it was created. Raises SpecError if the hub refuses or its token is
    read-only."""
    account = _request(api, "", api.whoami)
    if (((account.get("auth") or {}).get("accessToken")) or {}).get("role") == "read":
        raise SpecError(f"The stored token of the hub is read-only, but a push needs write access. {ENTER_ANOTHER}")
    if settings.add:
        not_found = (
            f"There is no repository {settings.repository} on {api.endpoint}, or the stored token has no access to it. "
            "To create one, push again without “Add to the existing repository”."
        )
        _request(api, not_found, lambda: api.repo_info(settings.repository))
        return False
    create = partial(api.create_repo, settings.repository, private=settings.private, exist_ok=False)
    _request(api, _creation_refusal(api, settings, account), create)
    return True


def _creation_refusal(api: HfApi, settings: PushSettings, account: dict[str, Any]) -> str:
    owner, name = settings.repository.split("/")[0], str(account.get("name"))
    namespaces = [name, *(str(org.get("name")) for org in account.get("orgs") or ())]
    if owner not in namespaces:
        return f"The token's account, {name}, is not a member of {owner}, or there is no {owner} on {api.endpoint}."
    return f"The token's account, {name}, may not create {settings.repository}: it needs write access there."


def _request(api: HfApi, refusal: str, request: Callable[[], Any]) -> Any:
    """Send a request to the hub and return its result. Raises SpecError if it fails; `refusal` is the message if the
    hub refuses the request or finds nothing."""
    try:
        return request()
    except HUB_ERRORS as error:
        raise SpecError(_error_message(error, api, refusal)) from error


def _error_message(error: Exception, api: HfApi, refusal: str = "") -> str:
    hub = api.endpoint
    if not isinstance(error, HfHubHTTPError):
        if isinstance(error, httpx.TransportError):
            reason = first_line(error)
            return f"{hub} can't be reached from this host, or closed the connection ({reason}). Push again later."
        return f"The push failed: {' '.join(str(error).split())}"
    status, hub_message = error.response.status_code, error.server_message or first_line(error)
    if status == 401 and not isinstance(error, RepositoryNotFoundError):
        return f"{hub} doesn't accept the stored token: it has expired or been revoked. {ENTER_ANOTHER}"
    if refusal and status == 409:
        return (
            f"{hub} already has this repository: push again with “Add to the existing repository”, or choose "
            f"another name. The hub says: {hub_message}"
        )
    if refusal and status in (401, 403, 404):
        return refusal
    if status in (403, 404):
        return f"{hub} doesn't let the token's account write there. The hub says: {hub_message}"
    if status == 429 or status >= 500:
        return f"{hub} returned status {status}: push again later. The hub says: {hub_message}"
    return f"{hub} refused the push with status {status}. The hub says: {hub_message}"


# --- the commit --------------------------------------------------------------------------------------------------


def _commit(
    job: ModelJob, api: HfApi, settings: PushSettings, operations: list[CommitOperationAdd], upload: Upload
) -> Any:
    job.stage(f"uploading {gigabytes(upload.size)}")
    upload.begin()
    message = f"Add step {job.checkpoint.name.rpartition('-')[2]} of run {job.spec.run.start_from.partition('/')[0]}"
    with warnings.catch_warnings(action="ignore"):  # about optional parts of a card's head
        return api.create_commit(settings.repository, operations, commit_message=message)


@contextmanager
def _undo_on_failure(job: ModelJob, api: HfApi, settings: PushSettings, *, is_new: bool) -> Iterator[None]:
    """Delete the repository after an error if this push has created it (`is_new`), and report the outcome."""
    try:
        yield
    except Exception as error:
        outcome = _delete(api, settings) if is_new else f"{settings.repository} is unchanged."
        if caused_by(error, JobStopped) is not None:
            job.result(f"Stopped. {outcome}")
            raise JobStopped from error
        if hub_error := caused_by(error, *HUB_ERRORS):
            raise SpecError(f"{_error_message(hub_error, api)} {outcome}") from error
        print(outcome, flush=True)
        raise


def _delete(api: HfApi, settings: PushSettings) -> str:
    """Delete the repository and return a sentence with the outcome."""
    try:
        api.delete_repo(settings.repository, missing_ok=True)
    except (HfHubHTTPError, httpx.HTTPError, OSError) as error:
        return (
            f"{settings.repository} was created and is still empty on {api.endpoint}: delete it there. "
            f"{first_line(error)}"
        )
    return f"The repository {settings.repository}, which this push had created, was deleted again."
