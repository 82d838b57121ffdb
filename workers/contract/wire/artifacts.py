"""Checkpoints in the artifact store: the store's address, the responses to hosts, and the state of each upload."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import parse_qs, urlsplit

from workers.contract.wire.documents import ContractError

STORE = "ARTIFACT_STORE"
"""Name of the secret with the store's address and keys."""
STORES = "GRPO_STORES_CHECKPOINTS"
"""Name of a claim's secret that tells the host that there is a store. It contains no key."""


RUN_FOLDER = re.compile(r"(?P<run>[A-Za-z0-9_-]{1,64})")
ATTEMPT_FOLDER = re.compile(rf"{RUN_FOLDER.pattern}/(?P<attempt>[1-9][0-9]{{0,5}})")
CHECKPOINT_FOLDER = re.compile(rf"{ATTEMPT_FOLDER.pattern}/(?P<path>checkpoints/checkpoint-[0-9]{{1,9}})")
"""Pattern of a checkpoint's folder, relative to RUNS_DIR, which is also the name of its copy in the store."""


class Storing(StrEnum):
    """The state of a checkpoint's copy, as its host reports it."""

    UPLOADING = "uploading"
    STORED = "stored"
    FAILED = "failed"
    REMOVED = "removed"


@dataclass(frozen=True)
class Store:
    endpoint: str
    bucket: str
    prefix: str = ""
    region: str = ""
    key: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)


@dataclass(frozen=True)
class StoreRequest:
    """A request that a host wants to send to the store. The control plane signs it, so that no host has the keys."""

    method: str
    path: str
    """Path of the URL: /bucket/key, percent-encoded."""
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    """Headers that the signature must cover: those of S3's own, in lower case."""


@dataclass(frozen=True)
class StoreAnswer:
    """The response to a supervisor that asks for the store."""

    store: Store | None
    """The store without its keys."""
    manifest: str = ""
    """SHA-256 of the manifest of the requested checkpoint; "" if it isn't stored."""


def store_of(address: str, keys: str) -> Store:
    """Parse https://server/bucket/prefix?region=name and KEY_ID:SECRET. Raises ContractError if the address or the key
    has another form."""
    parts = urlsplit(address)
    bucket, _, prefix = parts.path.strip("/").partition("/")
    key, _, secret = keys.partition(":")
    if not bucket:
        raise ContractError("The address must name a bucket: https://server/bucket/prefix?region=name.")
    if parts.fragment or parse_qs(parts.query, keep_blank_values=True).keys() - {"region"}:
        raise ContractError("After a question mark, the address may name only the region: ?region=name.")
    if not key or not secret:
        raise ContractError("The key must be the access key's id and its secret, separated by a colon: ID:SECRET.")
    region = parse_qs(parts.query).get("region", [""])[0]
    return Store(f"{parts.scheme}://{parts.netloc}", bucket, prefix.strip("/"), region, key, secret)
