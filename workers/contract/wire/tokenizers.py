"""The transfer format of a model's tokenizer from a host to the control plane: one body, identified by its sha256.

The body is a line of JSON, {"files": [[name, bytes], ...]} sorted by name, followed by the files themselves.
"""

import json
import re
from collections.abc import Mapping

TOKENIZER_FILES = ("chat_template.jinja", "chat_template.json", "tokenizer.json", "tokenizer_config.json")
"""The files that a model may have; nothing else is transferred."""
TOKENIZER_LIMIT = 64 * 2**20
"""Maximum size of the body, in bytes."""
HEAD_LIMIT = 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")


class NoTokenizer(ValueError):
    """Error of a body that is not a valid tokenizer; the message says why."""


def head_of(sizes: Mapping[str, int]) -> bytes:
    """Build the first line of the body, with its line break, for files of these sizes."""
    return json.dumps({"files": [[name, sizes[name]] for name in sorted(sizes)]}).encode() + b"\n"


def sizes_in(head: bytes) -> dict[str, int]:
    """Read the files' sizes in bytes by name, in the body's order. Raises NoTokenizer for a line that head_of wouldn't
    build."""
    try:
        files = json.loads(head)["files"]
        sizes = {str(name): int(size) for name, size in files}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise NoTokenizer("The first line names no files.") from None
    unknown = sizes.keys() - {*TOKENIZER_FILES}
    if unknown or not sizes or min(sizes.values()) < 0 or head_of(sizes) != head:
        raise NoTokenizer("The first line names files that don't belong to a tokenizer.")
    if len(head) + sum(sizes.values()) > TOKENIZER_LIMIT:
        raise NoTokenizer(f"A tokenizer's files can have at most {TOKENIZER_LIMIT >> 20} MiB.")
    return sizes


def is_sha256(value: object) -> bool:
    return isinstance(value, str) and bool(_SHA256.fullmatch(value))
