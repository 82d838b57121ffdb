"""Download of a dataset's split from the Hugging Face hub, at the commit that the revision currently names."""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from controlplane.catalogue.datasets.fetching.choosing import NotFetched, SplitFiles, choose
from controlplane.catalogue.datasets.reader.progress_file import INTERVAL_S, ProgressFile
from controlplane.platform.datafolder import FULL_DISK_ERRORS

STAGE = "fetching"
README = "README.md"
MAX_README_BYTES = 8 * 2**20
MAX_TRIES = 3


def fetch(
    source: Mapping[str, str], folder: Path, limit: int
) -> tuple[list[tuple[str, Path]], SplitFiles, dict[str, Any]]:
    """Fetch a split's files into `folder`, and return ([(name, file)], the selection, {"commit", "id", "config",
    "files"}). Raises NotFetched if the hub can't be reached or refuses, or if the split doesn't exist or is unusable or
    too large."""
    with _translated_errors(source):
        info, sizes = _listing(source)
        selection = choose(list(sizes), _card(info.id, info.sha, sizes, folder), source["config"], source["split"])
        total = sum(sizes[name] for name in selection.files)
        if total > limit:
            raise NotFetched(
                f"The split has {total // 2**20:,} MiB; this installation accepts at most {limit // 2**20:,} MiB."
            )
        with _with_progress(folder, total):
            shards, remaining = list[tuple[str, Path]](), limit
            for name in selection.files:
                path = _file(info.id, name, info.sha, folder)
                remaining -= path.stat().st_size
                if remaining < 0:
                    raise NotFetched(
                        "The files are larger than the hub announced, and exceed the limit of this server."
                    )
                shards.append((name, path))
    details = {"commit": info.sha, "id": info.id, "config": selection.config, "files": list(selection.files[:50])}
    return shards, selection, details


def _listing(source: Mapping[str, str]) -> tuple[Any, dict[str, int]]:
    from huggingface_hub import HfApi, constants

    request_info = partial(HfApi().dataset_info, source["id"], revision=source["revision"])
    info = _with_retries(partial(request_info, files_metadata=True, timeout=constants.HF_HUB_ETAG_TIMEOUT))
    return info, {sibling.rfilename: sibling.size or 0 for sibling in info.siblings or []}


def _card(name: str, commit: str, sizes: Mapping[str, int], folder: Path) -> dict[str, Any]:
    """Read the README's front matter at this commit; return {} if there is none."""
    import yaml

    if not 0 < sizes.get(README, 0) <= MAX_README_BYTES:
        return {}
    text = _file(name, README, commit, folder).read_text("utf-8", "replace").replace("\r\n", "\n")
    if not text.startswith("---\n"):
        return {}
    try:
        card = yaml.safe_load(text[4:].partition("\n---")[0])
    except (yaml.YAMLError, RecursionError) as error:
        raise NotFetched("The front matter of the dataset's README, which lists its files, can't be read.") from error
    return card if isinstance(card, dict) else {}


def _file(name: str, file: str, commit: str, folder: Path) -> Path:
    from huggingface_hub import hf_hub_download

    get = partial(hf_hub_download, name, file, repo_type="dataset", revision=commit, local_dir=folder / "hub")
    return Path(_with_retries(get))


def _with_retries(call: Callable[[], Any]) -> Any:
    """Return the result of `call`, which is retried after temporary errors of the hub or the network."""
    for tries in range(1, MAX_TRIES):
        try:
            return call()
        except Exception as error:
            # huggingface_hub, httpx and xet share no class of errors, so the response status decides.
            if not _is_temporary(error):
                raise
            time.sleep(tries)
    return call()


@contextmanager
def _with_progress(folder: Path, total: int) -> Iterator[None]:
    progress, finished = ProgressFile(folder, STAGE, total), threading.Event()

    def watch() -> None:
        while not finished.wait(INTERVAL_S):
            progress.report(_size(folder / "hub"), 0)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # it has just been moved to its final place
            total += path.stat().st_size if path.is_file() else 0
    return total


@contextmanager
def _translated_errors(source: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    except (NotFetched, MemoryError):
        raise
    except Exception as error:
        # The hub client's own exceptions become messages for people.
        if isinstance(error, OSError) and error.errno in FULL_DISK_ERRORS:
            raise
        raise _refusal(error, source["id"], source["revision"]) from error


def _refusal(error: Exception, name: str, revision: str) -> NotFetched:
    import httpx
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import (
        DisabledRepoError,
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    hub, status = constants.ENDPOINT, _status(error)
    if isinstance(error, GatedRepoError):
        request_access = f"Request access on {hub}/datasets/{name}"
        token = "the token of this installation belongs to a user without access"  # noqa: S105
        if not get_token():
            token = "then set a token in the control plane's HF_TOKEN"  # noqa: S105
        return NotFetched(f"{name} is gated: its owner grants access.", f"{request_access}; {token}.", passing=True)
    if isinstance(error, DisabledRepoError):
        return NotFetched(f"{name} was disabled on {hub}.")
    if isinstance(error, RevisionNotFoundError):
        return NotFetched(f"{name} has no revision {revision} on {hub}.")
    if status == 401 and not isinstance(error, RepositoryNotFoundError):
        return NotFetched(f"{hub} rejected the token in HF_TOKEN.", passing=True)
    if isinstance(error, RepositoryNotFoundError):
        advice = (
            "Check the spelling, including capitals. Private datasets need a token in the control plane's HF_TOKEN."
        )
        return NotFetched(f"There is no dataset {name} on {hub}.", advice, passing=True)
    if isinstance(error, HFValidationError):
        return NotFetched(f"{name} is not a valid name for a dataset on the hub.")
    if status is not None:
        return NotFetched(f"{hub} responded with status {status}.", "Try again later.", passing=True)
    first_line = next(iter(str(error).splitlines()), "") or type(error).__name__
    if isinstance(error, httpx.ConnectError):
        reason = re.sub(r"^\[Errno -?\d+\] ", "", first_line).rstrip(".")
        return NotFetched(f"{hub} could not be reached: {reason[:1].lower()}{reason[1:200]}.", passing=True)
    return NotFetched(f"{hub} could not be reached, or the connection broke: {first_line[:200]}", passing=True)


def _is_temporary(error: Exception) -> bool:
    import httpx

    status = _status(error)
    return isinstance(error, httpx.TransportError) if status is None else status in (408, 429) or status >= 500


def _status(error: BaseException | None) -> int | None:
    """Return the status of the response that an error or one of its causes carries; None if there is no response."""
    depth = 0
    while error is not None and depth < 10:
        response = getattr(error, "response", None)
        if response is not None:
            return int(response.status_code)
        error, depth = error.__cause__ or error.__context__, depth + 1
    return None
