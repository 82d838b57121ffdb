"""Inspection of a model from its local files, or from those on the hub if no local cache has it.

Nothing is executed or unpickled. A local path must be inside the host's allowed roots after resolving all symbolic
links; a hub id is looked up in the local cache first.
"""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workers.contract.stack.commands import is_local
from workers.contract.wire import hub_files
from workers.models.facts import facts
from workers.models.files import InspectionError, LocalFiles
from workers.models.hub import GatedModel, Hub, facts_from_hub

_REVISION = re.compile(hub_files.REVISION)
_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")


def inspect(model: str, roots: Sequence[Path], hub: Hub | None = None, *, revision: str = "") -> dict[str, Any]:
    """Inspect a model, and return `ok` with its facts, or `ok: false` with an `error`. Facts from the hub include
    `hub: true`, `bytes` to download and `free_bytes` at the destination, or `unreachable: true`. `hub`: None if the hub
    must not be contacted. `revision`: revision of a model on the hub, or "" for main."""
    try:
        folder, source = find(model, roots, revision=revision)
        if folder is not None:
            files = LocalFiles(folder, (*roots, cache_folder()))
            return {"ok": True, "hub": False, "source": source, "path": str(folder), **facts(files)}
        hub_facts = facts_from_hub(model, hub, revision) if hub else {"chat_template": None}
        cache = cache_folder()
        free_bytes = shutil.disk_usage(next(folder for folder in (cache, *cache.parents) if folder.exists())).free
        return {"ok": True, "hub": True, "source": "hub", "free_bytes": free_bytes, **hub_facts}
    except InspectionError as error:
        return {"ok": False, "error": str(error), **({"gated": True} if isinstance(error, GatedModel) else {})}
    except OSError as error:
        return {"ok": False, "error": f"{model} can't be read: {error.strerror or error}."}


def find(model: str, roots: Sequence[Path], *, revision: str = "") -> tuple[Path | None, str]:
    """Return a model's folder, or None for a hub id without a complete cached copy, and its origin: "path" or "cache".
    Raises InspectionError if the model's name or revision is invalid, or if there is no such folder in `roots`."""
    if revision and (is_local(model) or not _REVISION.fullmatch(revision)):
        raise InspectionError(f"{model} has no revision {revision!r}: only models on the hub have revisions.")
    if is_local(model):
        return folder_inside(Path(model), roots), "path"
    if not _HUB_ID.fullmatch(model) or len(model) > 200:
        raise InspectionError(f"{model!r} is neither an absolute path nor a hub id such as Qwen/Qwen3-0.6B.")
    return cached_copy(model, revision), "cache"


def folder_inside(path: Path, roots: Sequence[Path]) -> Path:
    """Return the real folder of a local path. Raises InspectionError if it isn't inside one of the roots."""
    if not path.is_absolute() or "\0" in str(path):
        raise InspectionError(f"{path} is not an absolute path.")
    real_path = Path(os.path.realpath(path))
    allowed_roots = [Path(os.path.realpath(root)) for root in roots]
    if not any(real_path.is_relative_to(root) for root in allowed_roots):
        # The message is the same whether it exists or not, so that nothing outside the roots is revealed.
        where = ", ".join(str(root) for root in roots) or "none is set on this host"
        raise InspectionError(f"{path} is not inside the host's model folders ({where}).")
    if not real_path.is_dir():
        raise InspectionError(f"There is no folder {path} on this host.")
    return real_path


def cache_folder() -> Path:
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()


def cached_copy(model: str, revision: str = "") -> Path | None:
    """Find the cached copy that a download would use unchanged; return None if there is no complete one."""
    folder = cache_folder() / f"models--{model.replace('/', '--')}"
    try:
        commit = (folder / "refs" / (revision or hub_files.NEWEST)).read_text().strip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        commit = revision  # the revision may be a commit
    snapshot = folder / "snapshots" / commit
    return snapshot if commit and "/" not in commit and hub_files.is_complete(snapshot) else None
