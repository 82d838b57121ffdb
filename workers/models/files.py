"""Files of a model: JSON documents, and the headers of safetensors files.

Standard library only; nothing is executed or unpickled.
"""

import json
import math
import os
import re
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from workers.contract.wire.hub_files import INDEX, ONLY_PICKLES, PICKLES, SINGLE_FILE

JSON_LIMIT = 64 << 20
HEADER_LIMIT = 100 << 20
SHARDS_LIMIT = 1_000
_NOT_LINEAR = re.compile(r"embed|norm|\bwte\b|\bwpe\b", re.IGNORECASE)


class InspectionError(Exception):
    """Refusal of a model that can't be used; the message is for the user who named it."""


class Tensor(NamedTuple):
    dtype: str
    shape: list[int]
    size: int


@dataclass(frozen=True)
class Weights:
    parameters: int | None
    dtypes: dict[str, int]
    size: int
    """Bytes of the tensors in a folder, or of the download from the hub."""
    modules: list[str]
    names: frozenset[str] = frozenset()
    shapes: dict[str, list[int]] = field(default_factory=dict)
    """Shapes of the tensors in the headers that were read, which in a folder are all headers."""


class ModelFiles(Protocol):
    """Interface of a model's files, in a folder or on the hub."""

    container: str
    """Word for what contains the files: folder or repository."""

    def exists(self, name: str) -> bool: ...
    def size(self, name: str) -> int: ...
    def content(self, name: str, *, limit: int) -> bytes: ...
    def json(self, name: str) -> dict[str, Any]: ...
    def weights(self) -> Weights: ...


class LocalFiles:
    """Files in a model folder. Links out of the model folders, or out of the model's part of the cache, are refused."""

    container = "folder"

    def __init__(self, folder: Path, roots: Sequence[Path]) -> None:
        self.folder = folder
        self._allowed = [os.path.realpath(root) for root in (folder, *roots)]

    def path(self, name: str) -> Path:
        """Return the real path of a file. Raises InspectionError for a forbidden link."""
        real_path = os.path.realpath(self.folder / name)
        if not any(os.path.commonpath([root, real_path]) == root for root in self._allowed):
            raise InspectionError(f"{name} is a link to a path outside the host's model folders.")
        return Path(real_path)

    def exists(self, name: str) -> bool:
        return self.path(name).is_file()

    def size(self, name: str) -> int:
        return self.path(name).stat().st_size

    def content(self, name: str, *, limit: int) -> bytes:
        """Read a whole file. Raises InspectionError if it has more than `limit` bytes."""
        if self.size(name) > limit:
            raise InspectionError(f"{name} is larger than {limit >> 20} MiB.")
        with self.path(name).open("rb") as file:
            return file.read(limit)

    def json(self, name: str) -> dict[str, Any]:
        return json_object(self.content(name, limit=JSON_LIMIT), name)

    def weights(self) -> Weights:
        tensors: dict[str, Tensor] = {}
        for name in self._shards():
            tensors |= self._header(name)
        return weights_of(tensors)

    def _shards(self) -> list[str]:
        if self.exists(SINGLE_FILE):
            return [SINGLE_FILE]
        if not self.exists(INDEX):
            if any(path for pattern in PICKLES for path in self.folder.glob(pattern)):
                raise InspectionError(ONLY_PICKLES)
            raise InspectionError("The folder has no weights (model.safetensors).")
        names = shards_of(self.json(INDEX))
        missing_names = [name for name in names if not self.exists(name)]
        if missing_names:
            raise InspectionError(
                f"{len(missing_names)} of {len(names)} weight files are missing; the first is {missing_names[0]}."
            )
        return names

    def _header(self, name: str) -> dict[str, Tensor]:
        path = self.path(name)
        size = path.stat().st_size
        with open(path, "rb") as file:
            length = header_length(file.read(8), name, limit=min(HEADER_LIMIT, size - 8))
            tensors, end = tensors_of(file.read(length), name)
        if 8 + length + end > size:
            raise InspectionError(f"{name} is incomplete: it has {size} of {8 + length + end} bytes.")
        return tensors


def json_object(content: bytes, name: str) -> dict[str, Any]:
    """Parse a JSON object. Raises InspectionError for anything else."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InspectionError(f"{name} is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise InspectionError(f"{name} doesn't contain a JSON object.")
    return value


def shards_of(index: Mapping[str, Any]) -> list[str]:
    weight_map = index.get("weight_map")
    names = sorted({str(name) for name in weight_map.values()}) if isinstance(weight_map, dict) else []
    if not names or len(names) > SHARDS_LIMIT:
        raise InspectionError("model.safetensors.index.json names no weights.")
    return names


def header_length(start: bytes, name: str, *, limit: int) -> int:
    """Return the header's length in bytes, read from a safetensors file's first 8 bytes. Raises InspectionError if
    there is none or it exceeds `limit`."""
    length: int = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 0 < length <= limit:
        raise InspectionError(f"{name} is not a safetensors file, or it is incomplete.")
    return length


def tensors_of(header: bytes, name: str) -> tuple[dict[str, Tensor], int]:
    """Parse a safetensors header, and return the tensors and where their data ends. Raises InspectionError if it is
    invalid."""
    try:
        entries = [(tensor, entry) for tensor, entry in json.loads(header).items() if tensor != "__metadata__"]
        offsets = {tensor: (int(entry["data_offsets"][0]), int(entry["data_offsets"][1])) for tensor, entry in entries}
        tensors = {
            tensor: Tensor(
                str(entry["dtype"]), [int(n) for n in entry["shape"]], offsets[tensor][1] - offsets[tensor][0]
            )
            for tensor, entry in entries
        }
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        raise InspectionError(f"{name} has an invalid safetensors header.") from None
    return tensors, max((end for _, end in offsets.values()), default=0)


def weights_of(tensors: Mapping[str, Tensor]) -> Weights:
    counts: Counter[str] = Counter()
    for tensor in tensors.values():
        counts[tensor.dtype] += math.prod(tensor.shape)
    return Weights(
        parameters=sum(counts.values()),
        dtypes=dict(counts),
        size=sum(tensor.size for tensor in tensors.values()),
        modules=linear_modules(name for name, tensor in tensors.items() if len(tensor.shape) == 2),
        names=frozenset(tensors),
        shapes={name: tensor.shape for name, tensor in tensors.items()},
    )


def linear_modules(names: Iterable[str]) -> list[str]:
    modules = {
        name.removesuffix(".weight").rsplit(".", 1)[-1]
        for name in names
        if name.endswith(".weight") and not _NOT_LINEAR.search(name)
    }
    return sorted(modules)
