"""The tokenizers and chat templates that hosts upload, stored by their checksum.

Only the reader process opens them (`reader.prompts.chat`).
"""

import hashlib
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Any

from controlplane.catalogue.datasets.models import Tokenizer
from controlplane.catalogue.datasets.receiving import Readable
from controlplane.catalogue.hardware.models import ModelInspection
from workers.contract.wire.tokenizers import HEAD_LIMIT, NoTokenizer, is_sha256, sizes_in

PIECE = 2**18
DRAFT = "incoming-"
STALE_AFTER_S = 3600
"""Age from which a draft belongs to a process that died."""


def choices() -> list[Tokenizer]:
    """List the tokenizers that can be chosen, by model."""
    return [tokenizer for tokenizer in Tokenizer.objects.all() if tokenizer.folder.is_dir()]


def of_model(model: str, revision: str = "") -> Tokenizer | None:
    """Find the tokenizer named by the newest answer about this model, if it was received."""
    answered = (
        ModelInspection.objects.filter(model=model, revision=revision).exclude(answer=None).order_by("-answered_at")
    )
    for inspection in answered[:20]:
        if sha256 := named_in(inspection):
            return _stored(sha256)
    return None


def note(inspection: ModelInspection) -> str:
    """Return the host's note on the model's tokenizer if tokens can't be counted; "" if they can."""
    return str(_tokenizer_files(inspection).get("note") or "")


def is_missing(inspection: ModelInspection) -> bool:
    """Test whether the answer names a tokenizer that is missing here."""
    sha256 = named_in(inspection)
    return bool(sha256) and _stored(sha256) is None


def named_in(inspection: ModelInspection) -> str:
    """Read the sha256 of the tokenizer that the answer names; "" without one."""
    sha256 = _tokenizer_files(inspection).get("sha256")
    return str(sha256) if is_sha256(sha256) else ""


def store(inspection: ModelInspection, body: Readable) -> Tokenizer:
    """Store the uploaded files of a host; stored ones change nothing. Raises NoTokenizer, and leaves nothing then."""
    sha256 = named_in(inspection)
    if (stored := _stored(sha256)) is not None:
        return stored
    target = Tokenizer(sha256=sha256).folder
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_stale(target.parent)
    draft = target.parent / f"{DRAFT}{secrets.token_hex(8)}"
    draft.mkdir(mode=0o700)
    try:
        size = _receive(body, draft, sha256)
        if not target.is_dir():
            try:
                draft.rename(target)
            except OSError:
                if not target.is_dir():  # else another host uploaded the same files meanwhile
                    raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    has_template = bool((inspection.answer or {}).get("chat_template"))
    tokenizer, _ = Tokenizer.objects.get_or_create(
        sha256=sha256, defaults={"model": inspection.model, "has_chat_template": has_template, "bytes": size}
    )
    return tokenizer


def _tokenizer_files(inspection: ModelInspection) -> dict[str, Any]:
    files = (inspection.answer or {}).get("tokenizer_files")
    return files if isinstance(files, dict) else {}


def _stored(sha256: str) -> Tokenizer | None:
    tokenizer = Tokenizer.objects.filter(pk=sha256).first()
    return tokenizer if tokenizer and tokenizer.folder.is_dir() else None


def _receive(body: Readable, folder: Path, sha256: str) -> int:
    """Write the files of a body into `folder`, synced to disk. Returns the number of bytes."""
    start = body.read(HEAD_LIMIT)
    head, end, rest = start.partition(b"\n")
    digest = hashlib.sha256(head + end)
    received = len(head + end)
    for name, size in sizes_in(head + end).items():
        with (folder / name).open("xb") as file:
            remaining = size
            while remaining:
                piece, rest = (rest[:remaining], rest[remaining:]) if rest else (body.read(min(PIECE, remaining)), b"")
                if not piece:
                    raise NoTokenizer(f"The body ends inside {name}.")
                file.write(piece)
                digest.update(piece)
                remaining -= len(piece)
            file.flush()
            os.fsync(file.fileno())
        received += size
    if rest or body.read(1):
        raise NoTokenizer("The body continues after its files.")
    if digest.hexdigest() != sha256:
        raise NoTokenizer("The checksum of the body is not the announced one.")
    return received


def _remove_stale(parent: Path) -> None:
    for path in parent.glob(f"{DRAFT}*"):
        try:
            old = time.time() - path.stat().st_mtime > STALE_AFTER_S
        except FileNotFoundError:
            continue
        if old:
            shutil.rmtree(path, ignore_errors=True)
