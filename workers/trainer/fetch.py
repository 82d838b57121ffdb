"""python -m workers.trainer.fetch MODEL --progress FILE: download models from the Hugging Face hub into this host's
cache.

Exit codes: 0 everything that a run loads is in the cache (if it was there before, without network access), 6
unavailable, with an error message in the last line of stderr. FILE gets a line of JSON at most once a second: {"t",
"done_bytes", "total_bytes", "files_done", "files"}.

HF_ENDPOINT, HF_HOME and HF_TOKEN have their usual meaning for huggingface_hub, which does the download.
"""

import argparse
import shutil
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.contract.wire import hub_files
from workers.trainer import fetching, unavailable
from workers.trainer.fetching import DownloadProgress, PartialFiles
from workers.trainer.unavailable import ModelUnavailable

UNAVAILABLE = 6
POLL_S = 0.25
MAX_TRIES = 4
"""Maximum number of tries of a download that fails temporarily; complete files are not downloaded again."""
MIN_FREE_BYTES = 64 << 20
HUB_TIMEOUT_S = 20.0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workers.trainer.fetch", description=__doc__)
    parser.add_argument("model", help="a hub id such as Qwen/Qwen3-0.6B")
    parser.add_argument("--revision", help="a branch, a tag or a commit; default: main")
    parser.add_argument(
        "--also", action="append", default=[], metavar="MODEL[@REVISION]", help="another model to fetch after it"
    )
    parser.add_argument("--progress", type=Path, required=True, metavar="FILE")
    parser.add_argument("--stall-s", type=float, default=120.0, help="give up after this many seconds without data")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _raise_terminated)
    progress = DownloadProgress(options.progress)
    partial_files = PartialFiles()
    try:
        fetch(options.model, options.revision, progress, stall_s=options.stall_s)
        for model_and_revision in options.also:
            model, _, revision = model_and_revision.partition("@")
            progress.begin_next()
            fetch(model, revision or None, progress, stall_s=options.stall_s)
    except ModelUnavailable as error:
        code = UNAVAILABLE
        sys.stdout.flush()
        print(" ".join(str(error).split()), file=sys.stderr, flush=True)
    except Terminated:
        code = 128 + signal.SIGTERM
        sys.stdout.flush()
    else:
        return 0
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    partial_files.delete_and_exit(code)


class Terminated(BaseException):
    """Raised in the main thread on SIGTERM."""


def _raise_terminated(*_: object) -> None:
    raise Terminated


def fetch(model: str, revision: str | None, progress: DownloadProgress, *, stall_s: float) -> None:
    """Download a model unless it is cached. Raises ModelUnavailable on failure, or after `stall_s` without data."""
    download = Download(model, revision, progress)
    folder = download.cached()
    if folder is not None:
        print(f"{model} is in the cache: {folder}", flush=True)
        progress.complete(folder)
        return
    thread = threading.Thread(target=download.run, name="download", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(POLL_S)
        progress.update()
        if progress.silent_s() > stall_s:
            raise ModelUnavailable(
                f"The download of {model} stalled: {fetching.endpoint()} sent nothing for {stall_s:g} s. Start the run "
                f"again when the connection is better; complete files are kept."
            )
    if download.error is not None:
        raise download.error
    progress.update(is_last=True)
    print(f"{model} is complete: {download.folder}", flush=True)


@dataclass
class Download:
    """One model's download into the cache. `run` is called in a thread and never raises."""

    model: str
    revision: str | None
    progress: DownloadProgress
    folder: Path | None = None
    error: ModelUnavailable | None = None

    def cached(self) -> Path | None:
        """Return the snapshot that offline loading would use, or None if it is missing or incomplete."""
        from huggingface_hub.errors import LocalEntryNotFoundError

        try:
            folder = Path(self._snapshot(local_files_only=True))
        except LocalEntryNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self._as_unavailable(error) from None
        return folder if hub_files.is_complete(folder) else None

    def run(self) -> None:
        for attempt in range(1, MAX_TRIES + 1):
            try:
                self.folder = self._download()
                return
            except ModelUnavailable as error:
                self.error = error
                return
            except Exception as error:
                if attempt == MAX_TRIES or not unavailable.is_temporary(error):
                    self.error = self._as_unavailable(error)
                    return
                print(f"Trying again: {unavailable.first_line(error)}", flush=True)
                time.sleep(2 ** (attempt - 1))

    def _download(self) -> Path:
        from huggingface_hub import HfApi

        info = HfApi().model_info(self.model, revision=self.revision, files_metadata=True, timeout=HUB_TIMEOUT_S)
        siblings = info.siblings or []
        names = [sibling.rfilename for sibling in siblings]
        if problem := hub_files.refusal(names):
            raise ModelUnavailable(f"{self.model} can't be used. {problem}")
        listing = fetching.FileListing.of(self.model, info)
        self.progress.follow(listing)
        self._check_room(listing)
        hub = fetching.endpoint()
        print(f"Fetching {self.model} from {hub}: {len(listing.files)} files, {listing.total:,} bytes", flush=True)
        folder = Path(self._snapshot())
        if folder.name == info.sha and (
            missing_files := [f.name for f in listing.files if not (folder / f.name).exists()]
        ):
            raise ModelUnavailable(
                f"The copy of {self.model} in the cache is incomplete: {missing_files[0]} is missing."
            )
        return folder

    def _snapshot(self, **options: Any) -> str:
        from huggingface_hub import constants, snapshot_download

        # This is the size of writes and so of progress steps: a slow connection must not look dead.
        constants.DOWNLOAD_CHUNK_SIZE = 1 << 18
        return str(
            snapshot_download(
                self.model,
                revision=self.revision,
                allow_patterns=list(hub_files.WANTED_FILES),
                ignore_patterns=list(hub_files.UNWANTED_FILES),
                tqdm_class=self.progress.bar_class(),
                **options,
            )
        )

    def _as_unavailable(self, error: Exception) -> ModelUnavailable:
        text = unavailable.sentence(error, self.model, self.revision)
        if not text:
            traceback.print_exception(error)
            text = f"{self.model} could not be fetched: {type(error).__name__}: {unavailable.first_line(error)}"
        return ModelUnavailable(text)

    def _check_room(self, listing: fetching.FileListing) -> None:
        needed_bytes = listing.total - listing.cached().received
        free_bytes = shutil.disk_usage(fetching.nearest_existing(fetching.cache())).free
        if needed_bytes + MIN_FREE_BYTES > free_bytes:
            raise ModelUnavailable(
                f"{self.model} needs {unavailable.gigabytes(needed_bytes)} more in {fetching.cache()}, but only "
                f"{unavailable.gigabytes(free_bytes)} are free there: delete models that nobody "
                f"needs, or set HF_HOME to a folder on a larger disk."
            )


if __name__ == "__main__":
    sys.exit(main())
