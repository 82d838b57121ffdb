"""Signatures of hosts' requests to the artifact store. Hosts have no keys: each request is checked and signed here.

A host may change the checkpoints of its own attempt, and read those that the attempt needs.
"""

import re
from urllib.parse import parse_qsl, quote, unquote, urlencode

from controlplane.platform.accounts import vault
from runs.engine.artifacts import copies
from runs.engine.models import Attempt
from workers.artifactstore import SIGNED_HEADERS, signed_url
from workers.contract.wire.artifacts import CHECKPOINT_FOLDER, StoreRequest

READ_QUERIES: dict[str, tuple[set[str], ...]] = {"GET": (set(),), "HEAD": (set(),)}
"""The names of the parameters of each allowed request that reads a file, by method."""
WRITE_QUERIES: dict[str, tuple[set[str], ...]] = {
    "PUT": (set(), {"partNumber", "uploadId"}),
    "POST": ({"uploads"}, {"uploadId"}),
    "DELETE": (set(), {"uploadId"}),
}
LIST = {"list-type", "prefix", "delimiter", "encoding-type", "max-keys", "continuation-token"}
"""The names of the parameters that a listing of one folder may have."""
_FOLDER = re.compile(rf"{CHECKPOINT_FOLDER.pattern}(?=/|$)")


class NotSigned(Exception):
    """Error for a request that the attempt may not send."""


def sign(attempt: Attempt, request: StoreRequest) -> str:
    """Return the signed URL of a request. Raises NotSigned if the attempt may not make it or there is no store, and
    vault.NotGiven if the store's keys can't be read."""
    store = vault.artifact_store()
    if store is None:
        raise NotSigned("the artifact store no longer exists")
    bucket, _, key = unquote(request.path.removeprefix("/")).partition("/")
    query = dict(parse_qsl(request.query, keep_blank_values=True))
    names, method = query.keys(), request.method
    if bucket != store.bucket or request.headers.keys() - SIGNED_HEADERS:
        raise NotSigned("it has another bucket or other headers than an upload or a download")
    is_list = method == "GET" and not key and query.get("prefix", "").endswith("/") and names <= LIST
    writes = names in WRITE_QUERIES.get(method, ())
    if not (is_list or writes or names in READ_QUERIES.get(method, ())):
        raise NotSigned("it is neither an upload nor a download, a removal or a listing of a folder")
    _check_folder(attempt, store.prefix, query["prefix"] if is_list else key, writes=writes)
    path = quote(f"/{bucket}/{key}".rstrip("/") if is_list else f"/{bucket}/{key}", safe="/~")
    return signed_url(store, StoreRequest(method, path, urlencode(query, quote_via=quote), request.headers))


def _check_folder(attempt: Attempt, prefix: str, key: str, *, writes: bool) -> None:
    name = key.removeprefix(f"{prefix}/") if prefix else key
    folder = _FOLDER.match(name)
    if folder is None or (prefix and name == key) or {".", "..", ""} & set(name.rstrip("/").split("/")):
        raise NotSigned("it is for no checkpoint")
    if (folder["run"], int(folder["attempt"])) == (attempt.run_id, attempt.number):
        return
    if writes or folder[0] not in copies.folders_needed_by(attempt):
        raise NotSigned("it is for a checkpoint of another attempt")
