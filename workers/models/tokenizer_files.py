"""A model's tokenizer and chat template, found where the model is, for the control plane to show prompts with.

Read as bytes: nothing of them is parsed or run on the host.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.contract.tokenizers import TOKENIZER_FILES, TOKENIZER_LIMIT, head_of
from workers.models.files import InspectionError, LocalFiles
from workers.models.hub import Away, Hub
from workers.models.inspection import cache_folder, find

FILES_LIMIT = TOKENIZER_LIMIT - 4096
SENTENCEPIECE = ("tokenizer.model", "spiece.model")
PIECE = 2**18


@dataclass(frozen=True)
class TokenizerFiles:
    """`files`: name -> content; none where nothing can be brought. `note` says what is missing and why."""

    files: Mapping[str, bytes]
    note: str = ""

    @property
    def sha256(self) -> str:
        """Of the body as it travels; "" without files."""
        if not self.files:
            return ""
        digest = hashlib.sha256()
        for piece in self.body():
            digest.update(piece)
        return digest.hexdigest()

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return sum(map(len, self.body()))

    def body(self) -> Iterator[bytes]:
        yield head_of({name: len(content) for name, content in self.files.items()})
        for name in sorted(self.files):
            content = memoryview(self.files[name])
            for start in range(0, len(content), PIECE):
                yield bytes(content[start : start + PIECE])

    def told(self) -> dict[str, Any]:
        """What the answer to an inspection says of it, as its `tokenizer_files`."""
        size = self.size if self.files else 0
        return {"sha256": self.sha256, "bytes": size, "names": sorted(self.files), "note": self.note}


def collect(model: str, roots: Sequence[Path], hub: Hub | None = None) -> TokenizerFiles:
    """The files of a model that could be inspected. A failure is a note: the model itself can be used without."""
    try:
        folder, _ = find(model, roots)
        if folder is not None:
            return _local(LocalFiles(folder, (*roots, cache_folder())))
        return _from_hub(model, hub) if hub else TokenizerFiles({}, "No hub was asked for the tokenizer.")
    except Away as error:
        return TokenizerFiles({}, f"The tokenizer could not be fetched: {error}.")
    except InspectionError as error:
        return TokenizerFiles({}, str(error))
    except OSError as error:
        return TokenizerFiles({}, f"The tokenizer's files can't be read: {error.strerror or error}.")


def _local(files: LocalFiles) -> TokenizerFiles:
    paths = {name: files.path(name) for name in TOKENIZER_FILES if files.exists(name)}
    _refuse_too_much(sum(path.stat().st_size for path in paths.values()))
    found: dict[str, bytes] = {}
    for name, path in paths.items():
        with path.open("rb") as file:
            found[name] = file.read(FILES_LIMIT + 1)  # it may have grown since it was measured
    _refuse_too_much(sum(map(len, found.values())))
    return TokenizerFiles(found, _note(found, any(files.exists(name) for name in SENTENCEPIECE)))


def _from_hub(model: str, hub: Hub) -> TokenizerFiles:
    if hub.offline:
        raise InspectionError("HF_HUB_OFFLINE keeps this host off the hub.")
    files = hub.files(model)
    names = [name for name in TOKENIZER_FILES if files.exists(name)]
    _refuse_too_much(sum(files.sizes[name] for name in names))
    found: dict[str, bytes] = {}
    for name in names:
        left = FILES_LIMIT - sum(map(len, found.values()))
        found[name] = files.content(name, limit=left)
    return TokenizerFiles(found, _note(found, any(files.exists(name) for name in SENTENCEPIECE)))


def _refuse_too_much(size: int) -> None:
    if size > FILES_LIMIT:
        raise InspectionError(f"The tokenizer's files are {size:,} bytes; at most {FILES_LIMIT:,} are brought.")


def _note(found: Mapping[str, bytes], sentencepiece: bool) -> str:
    if "tokenizer.json" in found:
        return ""
    kind = "sentencepiece's file alone" if sentencepiece else "a vocabulary in other files"
    return f"The model has no tokenizer.json, but {kind}: prompts can be shown, their tokens can't be counted."
