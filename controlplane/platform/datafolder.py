"""The data folder and its secret key. Standard library only: manage.py uses it before Django is loaded."""

import fcntl
import os
import secrets
from pathlib import Path


class DataFolderUnusable(Exception):
    """A data folder that can't be created, read or written."""


def data_folder(base: Path) -> Path:
    """Return CONTROLPLANE_DATA, or .data next to manage.py. Create it with mode 0700. Raises DataFolderUnusable."""
    folder = Path(os.environ.get("CONTROLPLANE_DATA") or base / ".data").resolve()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DataFolderUnusable(f"The data folder {folder} can't be made: {error.strerror}. {_ELSEWHERE}") from None
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise DataFolderUnusable(f"The data folder {folder} can't be read and written. {_ELSEWHERE}")
    return folder


_ELSEWHERE = "Set CONTROLPLANE_DATA to a folder of yours."


def incoming(folder: Path) -> Path:
    """Return the folder of unfinished uploads, on the datasets' disk so that they can be moved without copying."""
    return folder / "datasets" / "incoming"


def secret_key(folder: Path) -> str:
    """Return the installation's secret key, created once with mode 0600. Processes that start together agree on it."""
    path = folder / "secret_key"
    try:
        return path.read_text()
    except FileNotFoundError:
        pass
    # Written in full under another name and linked into place: no one can read half a key.
    draft = folder / f".secret_key.{os.getpid()}"
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
        f.write(secrets.token_urlsafe(50))
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    except OSError:
        _take_turns(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return path.read_text()


def _take_turns(draft: Path, path: Path) -> None:
    """Move the draft into place on a file system without hard links: under a lock, if there is no key yet."""
    with (path.parent / ".secret_key.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            draft.rename(path)
