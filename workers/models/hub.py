"""Facts about a model that this host has no copy of, read from the Hugging Face hub with a few short HTTP requests.

Each response is limited in size, and all of them together in time. The hub redirects to its file storage: each redirect
is checked like the first request, https stays https, and only the hub gets the token.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from workers import outbound
from workers.contract.wire import hub_files
from workers.contract.wire.hub_files import INDEX, SINGLE_FILE
from workers.models.facts import facts
from workers.models.files import (
    InspectionError,
    Tensor,
    Weights,
    header_length,
    json_object,
    linear_modules,
    shards_of,
    tensors_of,
    weights_of,
)

ENDPOINT = "https://huggingface.co"
TIMEOUT_S = 25.0
"""Time limit of all requests about one model; the page waits a minute for the host's result."""
HEADER_TIMEOUT_S = 10.0
"""Time limit of reading a weight file's header, which is optional."""
JSON_LIMIT = 32 << 20
HEADER_LIMIT = 16 << 20
FIRST_READ_BYTES = 1 << 20
"""Bytes of a weight file that are read first; nearly every header is shorter."""
MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


class HubUnavailable(Exception):
    """Failure to reach the hub, with the reason."""


class GatedModel(InspectionError):
    """Refusal of a model whose terms must be accepted first."""


@dataclass(frozen=True)
class Hub:
    """Address of the hub and this host's token, as huggingface_hub in the trainer's environment will use them."""

    endpoint: str = ENDPOINT
    token: str | None = None
    offline: bool = False

    @classmethod
    def of(cls, token_file: Path | None, environment: Mapping[str, str] | None = None) -> "Hub":
        """Read the settings from the environment. `token_file`: the host's setting, which takes precedence over the
        token of a user who is signed in on the host."""
        env = os.environ if environment is None else environment
        home = Path(env.get("HF_HOME") or "~/.cache/huggingface").expanduser()
        token_files = (token_file, Path(env.get("HF_TOKEN_PATH") or home / "token"))
        offline = env.get("HF_HUB_OFFLINE") or env.get("TRANSFORMERS_OFFLINE") or ""
        return cls(
            endpoint=(env.get("HF_ENDPOINT") or ENDPOINT).rstrip("/"),
            token=next((token for path in token_files if path and (token := _read_token(path))), None),
            offline=offline.upper() in _TRUE,
        )

    def files(self, model: str, revision: str = "") -> "HubFiles":
        """Open the model's repository. Raises HubUnavailable if the hub can't be reached, GatedModel if it requires
        access to be granted, and InspectionError if it is missing or unusable."""
        return HubFiles(self, model, revision or hub_files.NEWEST, time.monotonic() + TIMEOUT_S)


class HubFiles:
    """Files of a repository at a revision, which is a branch, a tag or a commit."""

    container = "repository"

    def __init__(self, hub: Hub, model: str, revision: str, deadline: float) -> None:
        self._hub, self._model, self._revision, self._deadline = hub, model, revision, deadline
        info = self._get(f"/api/models/{model}/revision/{quote(revision, safe='')}?blobs=true")
        self.info = json_object(info, "The hub's response")
        self._sizes = _sizes(self.info)
        self.commit = str(self.info.get("sha") or revision)
        if problem := hub_files.refusal(self._sizes):
            raise InspectionError(problem)

    @property
    def gated(self) -> bool:
        return bool(self.info.get("gated"))

    @property
    def download(self) -> int:
        return sum(size for name, size in self._sizes.items() if hub_files.is_needed(name))

    def exists(self, name: str) -> bool:
        return name in self._sizes

    def size(self, name: str) -> int:
        return self._sizes[name]

    def json(self, name: str) -> dict[str, Any]:
        return json_object(self._get(self._address(name)), name)

    def content(self, name: str, *, limit: int) -> bytes:
        """Read a whole file. Raises InspectionError if it has more than `limit` bytes."""
        return self._get(self._address(name), limit=limit)

    def weights(self) -> Weights:
        index = {} if self.exists(SINGLE_FILE) else self.json(INDEX)
        first_shard = SINGLE_FILE if self.exists(SINGLE_FILE) else shards_of(index)[0]
        weights = weights_of(self._header(first_shard))
        if index:
            names = frozenset(str(name) for name in index["weight_map"])
            weights = replace(weights, names=names, modules=linear_modules(names), parameters=None, dtypes={})
        parameters, dtypes = _parameter_counts(self.info)
        metadata = index.get("metadata")
        stated = metadata.get("total_parameters") if isinstance(metadata, dict) else None
        total = stated if isinstance(stated, int) and not isinstance(stated, bool) else None
        return replace(
            weights,
            parameters=parameters or weights.parameters or total or None,
            dtypes=dtypes or weights.dtypes,
            size=self.download,
        )

    def _header(self, name: str) -> dict[str, Tensor]:
        """Read a weight file's header; return {} if that takes too long, since the other facts are useful without
        it."""
        try:
            start = self._get(self._address(name), limit=FIRST_READ_BYTES, is_whole=False)
            length = header_length(start[:8], name, limit=HEADER_LIMIT)
            if len(start) < 8 + length:
                start = self._get(self._address(name), limit=8 + length, is_whole=False)
        except HubUnavailable:
            return {}
        return tensors_of(start[8 : 8 + length], name)[0]

    def _address(self, name: str) -> str:
        return f"/{self._model}/resolve/{quote(self.commit, safe='')}/{quote(name)}"

    def _get(self, path: str, *, limit: int | None = None, is_whole: bool = True) -> bytes:
        """Return a response's body or, unless `is_whole`, at most its first `limit` bytes."""
        limit = limit or JSON_LIMIT
        try:
            response = self._request(self._hub.endpoint + path, limit, is_whole)
            self._check_status(response)
            return response.whole()
        except outbound.TooLong:
            if not is_whole:
                return response.start
            raise InspectionError(f"The hub's response to {path} is larger than {limit >> 20} MiB.") from None
        except outbound.TimedOut:
            raise HubUnavailable(f"{self._hub.endpoint} responds too slowly") from None
        except (outbound.OutboundError, ValueError) as error:  # a Location header may contain anything
            raise HubUnavailable(f"{self._hub.endpoint}: {str(error).rstrip('.')}") from None

    def _request(self, url: str, limit: int, is_whole: bool) -> outbound.Response:
        for _ in range(1 + MAX_REDIRECTS):
            headers = {"User-Agent": "grpo-control-plane"} | ({} if is_whole else {"Range": f"bytes=0-{limit - 1}"})
            if self._hub.token and _origin(url) == _origin(self._hub.endpoint):
                headers["Authorization"] = f"Bearer {self._hub.token}"
            seconds = self._deadline - time.monotonic()
            seconds = seconds if is_whole else min(seconds, HEADER_TIMEOUT_S)
            response = outbound.send("GET", url, headers=headers, seconds=seconds, limit=limit, proxy=_proxy_for(url))
            if response.status not in _REDIRECTS:
                return response
            previous_url, url = url, urljoin(url, response.headers.get("Location", ""))
            if previous_url.startswith("https:") and not url.startswith("https:"):
                raise HubUnavailable(f"{self._hub.endpoint} redirects from https to {urlsplit(url).scheme}")
        raise HubUnavailable(f"{self._hub.endpoint} redirects more than {MAX_REDIRECTS} times")

    def _check_status(self, response: outbound.Response) -> None:
        status, code = response.status, response.headers.get("X-Error-Code")
        if status < 300:
            return
        if code == "GatedRepo":
            raise GatedModel(hub_files.gated_message(self._model, self._hub.endpoint, has_token=bool(self._hub.token)))
        if status == 401 and self._hub.token:
            raise InspectionError(hub_files.invalid_token_message(self._hub.endpoint))
        if code == "RevisionNotFound":
            raise InspectionError(hub_files.missing_revision_message(self._model, self._revision, self._hub.endpoint))
        if status in (401, 404) and code in (None, "RepoNotFound"):
            raise InspectionError(hub_files.missing_message(self._model, self._hub.endpoint))
        if status < 500 and status not in (408, 429):
            raise InspectionError(
                f"{self._hub.endpoint} refuses {self._model}: status {status}, {code or 'no reason'}."
            )
        raise HubUnavailable(f"{self._hub.endpoint} responded with status {status}")


def facts_from_hub(model: str, hub: Hub, revision: str = "") -> dict[str, Any]:
    """Read a model's facts from its files on the hub, or say why the hub is unreachable. Raises InspectionError if this
    host is offline, or if the model is missing, gated or unusable."""
    if hub.offline:
        raise InspectionError(f"This host has no complete copy of {model}, and HF_HUB_OFFLINE keeps it off the hub.")
    try:
        files = hub.files(model, revision)
        return {**facts(files), "gated": files.gated}
    except HubUnavailable as error:
        return {"unreachable": True, "why": str(error), "chat_template": None}


def _origin(url: str) -> tuple[str, str]:
    address = urlsplit(url)
    return address.scheme, address.netloc


def _proxy_for(url: str) -> str:
    proxy = getproxies().get("https", "")
    if not proxy or not url.startswith("https:") or proxy_bypass(urlsplit(url).netloc):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _read_token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return token if token.isascii() and token.isprintable() else ""


def _sizes(info: Mapping[str, Any]) -> dict[str, int]:
    siblings = info.get("siblings")
    sizes: dict[str, int] = {}
    for sibling in siblings if isinstance(siblings, list) else []:
        if isinstance(sibling, dict) and isinstance(sibling.get("rfilename"), str):
            size = sibling.get("size")
            sizes[sibling["rfilename"]] = size if isinstance(size, int) and size > 0 else 0
    return sizes


def _parameter_counts(info: Mapping[str, Any]) -> tuple[int | None, dict[str, int]]:
    safetensors = info.get("safetensors")
    by_type = safetensors.get("parameters") if isinstance(safetensors, dict) else None
    if not isinstance(by_type, dict):
        return None, {}
    dtypes = {str(name): count for name, count in by_type.items() if isinstance(count, int) and count > 0}
    return sum(dtypes.values()) or None, dtypes
