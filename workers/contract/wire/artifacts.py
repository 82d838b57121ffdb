"""Checkpoints in the artifact store: its address, what a host is told of it, and what it says of each checkpoint."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import parse_qs, urlsplit

from workers.contract.wire.documents import ContractError

STORE = "ARTIFACT_STORE"
"""The name of the secret that holds the store's address and keys."""
STORES = "GRPO_STORES_CHECKPOINTS"
"""Among a claim's secrets: there is a store. It holds no key."""


RUN_FOLDER = re.compile(r"(?P<run>[A-Za-z0-9_-]{1,64})")
ATTEMPT_FOLDER = re.compile(rf"{RUN_FOLDER.pattern}/(?P<attempt>[1-9][0-9]{{0,5}})")
"""Relative to RUNS_DIR."""
CHECKPOINT_FOLDER = re.compile(rf"{ATTEMPT_FOLDER.pattern}/(?P<path>checkpoints/checkpoint-[0-9]{{1,9}})")
"""As above, and the name of the copy in the store."""


class Storing(StrEnum):
    """What a host says of a checkpoint."""

    UPLOADING = "uploading"
    STORED = "stored"
    FAILED = "failed"
    REMOVED = "removed"


@dataclass(frozen=True)
class Store:
    """An S3-compatible store."""

    endpoint: str
    bucket: str
    prefix: str = ""
    region: str = ""
    key: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)


@dataclass(frozen=True)
class StoreAnswer:
    """The answer to a supervisor's question for the store."""

    store: Store | None
    manifest: str = ""
    """The SHA-256 of the manifest of the checkpoint that was asked about; "": it isn't stored."""


def store_of(address: str, keys: str) -> Store:
    """Of https://server/bucket/prefix?region=name and KEY_ID:SECRET. Raises ContractError."""
    parts = urlsplit(address)
    bucket, _, prefix = parts.path.strip("/").partition("/")
    key, _, secret = keys.partition(":")
    if not bucket:
        raise ContractError("The address must name a bucket: https://server/bucket/prefix?region=name.")
    if parts.fragment or parse_qs(parts.query, keep_blank_values=True).keys() - {"region"}:
        raise ContractError("After a question mark, the address may name the region alone: ?region=name.")
    if not key or not secret:
        raise ContractError("The key must be the access key's id and its secret, with a colon between: ID:SECRET.")
    region = parse_qs(parts.query).get("region", [""])[0]
    return Store(f"{parts.scheme}://{parts.netloc}", bucket, prefix.strip("/"), region, key, secret)
