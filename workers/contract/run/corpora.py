"""A corpus: a Parquet file of documents for the search tool, written by the control plane and fetched at the claim.

Its columns are COLUMNS: `id` counts from 0 in the order of the rows, `title` may be empty, `text` may not; both are in
Unicode's normal form NFC. The schema's metadata has {"format": FORMAT, "name", "about"} as JSON under KEY. A part's
parameter names a corpus by its title: "<name> v<version>".
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.contract.wire.names import FileName

FORMAT = 1
KEY = b"grpo_corpus"
COLUMNS = ("id", "title", "text")
MAX_DOCUMENTS = 500_000
MAX_TEXT_LENGTH = 20_000
"""Maximum number of characters in a document; longer ones are truncated."""
MAX_TITLE_LENGTH = 300
MAX_CHARACTERS = 200_000_000
"""Maximum number of characters in all documents together, whose index takes about 2 GB of the trainer's memory."""


def title(name: str, version: int) -> str:
    return f"{name} v{version}"


def name_and_version(title: str) -> tuple[str, int] | None:
    """Split a corpus's title into name and version; return None if it isn't such a title."""
    name, separator, number = title.rpartition(" v")
    return (name, int(number)) if separator and number.isascii() and number.isdigit() and len(number) < 9 else None


def path_in(folder: Path, sha256: str) -> Path:
    return folder / FileName.CORPORA / f"{sha256}.parquet"


def index_folder(path: Path) -> Path:
    return path.with_name(f"{path.name}.index")


def index_folders(folder: Path) -> list[Path]:
    return list((folder / FileName.CORPORA).glob(index_folder(Path("*")).name))


def schema_metadata(*, name: str, about: str) -> dict[bytes, bytes]:
    return {KEY: json.dumps({"format": FORMAT, "name": name, "about": about}, sort_keys=True).encode()}


def head_in(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """Read {"format", "name", "about"} from the schema's metadata. Raises ValueError if the file isn't a corpus."""
    head = json.loads((metadata or {}).get(KEY, b"{}"))
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ValueError(f"it isn't a corpus in version {FORMAT} of the format")
    return head
