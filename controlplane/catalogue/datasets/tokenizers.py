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

CHUNK_BYTES = 2**18
DRAFT_PREFIX = "incoming-"
STALE_AFTER_S = 3600
"""Age at which a draft is assumed to belong to a process that died."""


def choices() -> list[Tokenizer]:
    """List the tokenizers that can be chosen, sorted by model."""
    return [tokenizer for tokenizer in Tokenizer.objects.all() if tokenizer.folder.is_dir()]


def of_model(model: str, revision: str = "") -> Tokenizer | None:
    """Find the tokenizer of the model's newest inspection that names one; return None if there is none or it isn't
    stored."""
    inspections = ModelInspection.objects.filter(model=model, revision=revision).exclude(answer=None)
    for inspection in inspections.order_by("-answered_at")[:20]:
        if sha256 := named_in(inspection):
            return _stored_tokenizer(sha256)
    return None


def note(inspection: ModelInspection) -> str:
    """Return the host's note on why the model's tokens can't be counted, or "" if they can be."""
    return str(_tokenizer_files(inspection).get("note") or "")


def is_missing(inspection: ModelInspection) -> bool:
    """Return whether the inspection names a tokenizer that no host has uploaded yet."""
    sha256 = named_in(inspection)
    return bool(sha256) and _stored_tokenizer(sha256) is None


def named_in(inspection: ModelInspection) -> str:
    """Return the sha256 of the tokenizer that the inspection names, or "" if it names none."""
    sha256 = _tokenizer_files(inspection).get("sha256")
    return str(sha256) if is_sha256(sha256) else ""


def store(inspection: ModelInspection, body: Readable) -> Tokenizer:
    """Store the tokenizer files that a host uploads, unless they are known, and return the row. Raises NoTokenizer if
    they are malformed, too large, or not those that the inspection names."""
    sha256 = named_in(inspection)
    if (known_tokenizer := _stored_tokenizer(sha256)) is not None:
        return known_tokenizer
    target = Tokenizer(sha256=sha256).folder
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_stale(target.parent)
    draft = target.parent / f"{DRAFT_PREFIX}{secrets.token_hex(8)}"
    draft.mkdir(mode=0o700)
    try:
        size = _receive(body, draft, sha256)
        if not target.is_dir():
            try:
                draft.rename(target)
            except OSError:
                if not target.is_dir():  # otherwise another host has just uploaded the same files
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


def _stored_tokenizer(sha256: str) -> Tokenizer | None:
    tokenizer = Tokenizer.objects.filter(pk=sha256).first()
    return tokenizer if tokenizer and tokenizer.folder.is_dir() else None


def _receive(body: Readable, folder: Path, sha256: str) -> int:
    head_bytes = body.read(HEAD_LIMIT)
    head, line_end, leftover = head_bytes.partition(b"\n")
    digest = hashlib.sha256(head + line_end)
    bytes_received = len(head + line_end)
    for name, size in sizes_in(head + line_end).items():
        with (folder / name).open("xb") as file:
            remaining = size
            while remaining:
                piece = leftover[:remaining] or body.read(min(CHUNK_BYTES, remaining))
                leftover = leftover[remaining:]
                if not piece:
                    raise NoTokenizer(f"The body ends inside {name}.")
                file.write(piece)
                digest.update(piece)
                remaining -= len(piece)
            file.flush()
            os.fsync(file.fileno())
        bytes_received += size
    if leftover or body.read(1):
        raise NoTokenizer("The body has more bytes after its last file.")
    if digest.hexdigest() != sha256:
        raise NoTokenizer("The body's checksum differs from the announced one.")
    return bytes_received


def _remove_stale(parent: Path) -> None:
    for path in parent.glob(f"{DRAFT_PREFIX}*"):
        try:
            is_stale = time.time() - path.stat().st_mtime > STALE_AFTER_S
        except FileNotFoundError:
            continue
        if is_stale:
            shutil.rmtree(path, ignore_errors=True)
