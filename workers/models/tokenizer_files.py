"""A model's tokenizer and chat template, for previews by the control plane.

The files are read as bytes; nothing in them is parsed or run on the host.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.contract.wire.tokenizers import TOKENIZER_FILES, TOKENIZER_LIMIT, head_of
from workers.models.files import InspectionError, LocalFiles, ModelFiles
from workers.models.hub import Hub, HubUnavailable
from workers.models.inspection import cache_folder, find

FILES_LIMIT = TOKENIZER_LIMIT - 4096
SENTENCEPIECE = ("tokenizer.model", "spiece.model")
PIECE = 2**18


@dataclass(frozen=True)
class TokenizerFiles:
    files: Mapping[str, bytes]
    """Contents by file name; {} if unavailable."""
    note: str = ""
    """Sentence that explains which files are missing and why; "" if none are."""

    @property
    def sha256(self) -> str:
        """SHA-256 of the transfer's body, or "" without files."""
        if not self.files:
            return ""
        digest = hashlib.sha256()
        for piece in self.body():
            digest.update(piece)
        return digest.hexdigest()

    @property
    def size(self) -> int:
        return sum(map(len, self.body()))

    def body(self) -> Iterator[bytes]:
        """Yield the transfer's body, in the format of workers.contract.wire.tokenizers."""
        yield head_of({name: len(content) for name, content in self.files.items()})
        for name in sorted(self.files):
            content = memoryview(self.files[name])
            for start in range(0, len(content), PIECE):
                yield bytes(content[start : start + PIECE])

    def summary(self) -> dict[str, Any]:
        size = self.size if self.files else 0
        return {"sha256": self.sha256, "bytes": size, "names": sorted(self.files), "note": self.note}


def collect(model: str, roots: Sequence[Path], hub: Hub | None = None, *, revision: str = "") -> TokenizerFiles:
    """Read the files of an inspected model. A failure becomes a note, because the model is usable without the files."""
    try:
        folder, _ = find(model, roots, revision=revision)
        if folder is not None:
            return _read(LocalFiles(folder, (*roots, cache_folder())))
        if hub is None:
            return TokenizerFiles({}, "The hub is not used for the tokenizer.")
        if hub.offline:
            raise InspectionError("HF_HUB_OFFLINE keeps this host off the hub.")
        return _read(hub.files(model, revision))
    except HubUnavailable as error:
        return TokenizerFiles({}, f"The tokenizer could not be fetched: {error}.")
    except InspectionError as error:
        return TokenizerFiles({}, str(error))
    except OSError as error:
        return TokenizerFiles({}, f"The tokenizer's files can't be read: {error.strerror or error}.")


def _read(files: ModelFiles) -> TokenizerFiles:
    names = [name for name in TOKENIZER_FILES if files.exists(name)]
    size = sum(map(files.size, names))
    if size > FILES_LIMIT:
        raise InspectionError(f"The tokenizer's files have {size:,} bytes; the limit is {FILES_LIMIT:,}.")
    contents: dict[str, bytes] = {}
    for name in names:
        remaining = FILES_LIMIT - sum(map(len, contents.values()))
        contents[name] = files.content(name, limit=remaining)
    if "tokenizer.json" in contents:
        return TokenizerFiles(contents)
    has_sentencepiece = any(files.exists(name) for name in SENTENCEPIECE)
    alternative = "only SentencePiece's file" if has_sentencepiece else "only a vocabulary in other files"
    note = f"The model has no tokenizer.json, {alternative}, so prompts can be shown, but their tokens not counted."
    return TokenizerFiles(contents, note)
