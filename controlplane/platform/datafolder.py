"""The data folder and its secret key. Standard library only: manage.py uses it before Django is loaded."""

import errno
import fcntl
import os
import secrets
from pathlib import Path

FULL_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a full disk, and of a user's or project's quota."""


class DataFolderUnusable(Exception):
    """Error for a data folder that can't be created, read, written or upgraded."""


def data_folder(base: Path) -> Path:
    """Return the folder CONTROLPLANE_DATA, by default .data next to manage.py, and create it with mode 0700 if it is
    missing. Raises DataFolderUnusable if it can't be created, read or written."""
    folder = Path(os.environ.get("CONTROLPLANE_DATA") or base / ".data").resolve()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DataFolderUnusable(
            f"The data folder {folder} can't be created: {error.strerror}. {_OTHER_FOLDER_FIX}"
        ) from None
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise DataFolderUnusable(f"The data folder {folder} isn't readable and writable. {_OTHER_FOLDER_FIX}")
    return folder


_OTHER_FOLDER_FIX = "Set CONTROLPLANE_DATA to a folder that you can write to."


def incoming(folder: Path) -> Path:
    """Return the folder of unfinished uploads. It is on the datasets' disk, so that they are moved without copying."""
    return folder / "datasets" / "incoming"


def secret_key(folder: Path) -> str:
    """Return the installation's secret key. The first process creates it with mode 0600; concurrent ones use it."""
    path = folder / "secret_key"
    try:
        return path.read_text()
    except FileNotFoundError:
        pass
    # Written in full under another name and linked into place: no one can read half a key.
    draft = folder / f".secret_key.{os.getpid()}"
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(50))
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    except OSError:
        _move_under_lock(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return path.read_text()


def _move_under_lock(draft: Path, path: Path) -> None:
    """Move the draft into place under a lock, unless there is a key. This suits file systems without hard links."""
    with (path.parent / ".secret_key.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            draft.rename(path)
