"""Facts from the Hugging Face hub about a model that this host has no copy of, by a few short HTTP requests.

Every answer has a limit of size and all of them one of time. The hub redirects to where it stores files: each hop is
checked like the first request, https stays https, and the token goes to the hub alone.
"""

from __future__ import annotations

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
from workers.contract.wire.hub_files import INDEX, SINGLE
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
WITHIN_S = 25.0
"""For all questions about one model; the page waits a minute for the host's answer."""
HEADER_S = 10.0
"""For a weight file's header, which can be done without."""
JSON_LIMIT = 32 << 20
HEADER_LIMIT = 16 << 20
FIRST_READ = 1 << 20
"""First bytes read of a weight file; nearly every header is shorter."""
MOST_HOPS = 5
_MOVED = frozenset({301, 302, 303, 307, 308})
_YES = frozenset({"1", "ON", "YES", "TRUE"})


class Away(Exception):
    """The hub can't be asked now; the message says what was met."""


class Gated(InspectionError):
    """Somebody has to accept the model's terms first."""


@dataclass(frozen=True)
class Hub:
    """Where the hub is and who asks it, as huggingface_hub in the trainer's environment will have it."""

    endpoint: str = ENDPOINT
    token: str | None = None
    offline: bool = False

    @classmethod
    def of(cls, token_file: Path | None, environment: Mapping[str, str] | None = None) -> Hub:
        """`token_file`: the host's setting; else the token of whoever signed in on the host."""
        env = os.environ if environment is None else environment
        home = Path(env.get("HF_HOME") or "~/.cache/huggingface").expanduser()
        places = (token_file, Path(env.get("HF_TOKEN_PATH") or home / "token"))
        offline = env.get("HF_HUB_OFFLINE") or env.get("TRANSFORMERS_OFFLINE") or ""
        return cls(
            endpoint=(env.get("HF_ENDPOINT") or ENDPOINT).rstrip("/"),
            token=next((token for place in places if place and (token := _read(place))), None),
            offline=offline.upper() in _YES,
        )

    def files(self, model: str, revision: str = "") -> HubFiles:
        """The model's repository. Raises Away, Gated, InspectionError."""
        return HubFiles(self, model, revision or hub_files.NEWEST, time.monotonic() + WITHIN_S)


class HubFiles:
    """The files of one repository at a revision: a branch, a tag or a commit."""

    what = "repository"

    def __init__(self, hub: Hub, model: str, revision: str, deadline: float) -> None:
        self._hub, self._model, self._revision, self._deadline = hub, model, revision, deadline
        info = self._get(f"/api/models/{model}/revision/{quote(revision, safe='')}?blobs=true")
        self.info = json_object(info, "The hub's answer")
        self.sizes = _sizes(self.info)
        self.commit = str(self.info.get("sha") or revision)
        if problem := hub_files.refusal(self.sizes):
            raise InspectionError(problem)

    @property
    def gated(self) -> bool:
        return bool(self.info.get("gated"))

    @property
    def download(self) -> int:
        """Bytes."""
        return sum(size for name, size in self.sizes.items() if hub_files.wanted(name))

    def exists(self, name: str) -> bool:
        return name in self.sizes

    def json(self, name: str) -> dict[str, Any]:
        return json_object(self._get(self._address(name)), name)

    def content(self, name: str, *, limit: int) -> bytes:
        """A whole file. Raises InspectionError for one of more than `limit` bytes."""
        return self._get(self._address(name), limit=limit)

    def weights(self) -> Weights:
        index = {} if self.exists(SINGLE) else self.json(INDEX)
        first = SINGLE if self.exists(SINGLE) else shards_of(index)[0]
        known = weights_of(self._header(first))
        if index:
            names = frozenset(str(name) for name in index["weight_map"])
            known = replace(known, names=names, modules=linear_modules(names), parameters=None, dtypes={})
        parameters, dtypes = _counted(self.info)
        return replace(
            known,
            parameters=parameters or known.parameters or _metadata(index, "total_parameters") or None,
            dtypes=dtypes or known.dtypes,
            size=self.download,
        )

    def _header(self, name: str) -> dict[str, Tensor]:
        """Empty if it can't be read in time; the other facts are reported without it."""
        try:
            start = self._get(self._address(name), limit=FIRST_READ, whole=False)
            length = header_length(start[:8], name, limit=HEADER_LIMIT)
            if len(start) < 8 + length:
                start = self._get(self._address(name), limit=8 + length, whole=False)
        except Away:
            return {}
        return tensors_of(start[8 : 8 + length], name)[0]

    def _address(self, name: str) -> str:
        return f"/{self._model}/resolve/{quote(self.commit, safe='')}/{quote(name)}"

    def _get(self, path: str, *, limit: int | None = None, whole: bool = True) -> bytes:
        """The answer's content; with `whole` false at most its first `limit` bytes."""
        limit = limit or JSON_LIMIT
        try:
            answer = self._answer(self._hub.endpoint + path, limit, whole)
            self._refuse(answer)
            return answer.whole()
        except outbound.TooLong:
            if not whole:
                return answer.start
            raise InspectionError(f"The hub's answer to {path} is larger than {limit >> 20} MiB.") from None
        except outbound.TimedOut:
            raise Away(f"{self._hub.endpoint} answers too slowly") from None
        except (outbound.OutboundError, ValueError) as error:  # a Location can be anything
            raise Away(f"{self._hub.endpoint}: {str(error).rstrip('.')}") from None

    def _answer(self, url: str, limit: int, whole: bool) -> outbound.Response:
        for _ in range(1 + MOST_HOPS):
            headers = {"User-Agent": "grpo-control-plane"} | ({} if whole else {"Range": f"bytes=0-{limit - 1}"})
            if self._hub.token and _origin(url) == _origin(self._hub.endpoint):
                headers["Authorization"] = f"Bearer {self._hub.token}"
            seconds = self._deadline - time.monotonic()
            seconds = seconds if whole else min(seconds, HEADER_S)
            answer = outbound.send("GET", url, headers=headers, seconds=seconds, limit=limit, proxy=_proxy_for(url))
            if answer.status not in _MOVED:
                return answer
            before, url = url, urljoin(url, answer.headers.get("Location", ""))
            if before.startswith("https:") and not url.startswith("https:"):
                raise Away(f"{self._hub.endpoint} redirects from https to {urlsplit(url).scheme}")
        raise Away(f"{self._hub.endpoint} redirects more than {MOST_HOPS} times")

    def _refuse(self, answer: outbound.Response) -> None:
        status, code = answer.status, answer.headers.get("X-Error-Code")
        if status < 300:
            return
        if code == "GatedRepo":
            raise Gated(hub_files.gated(self._model, self._hub.endpoint, has_token=bool(self._hub.token)))
        if status == 401 and self._hub.token:
            raise InspectionError(hub_files.bad_token(self._hub.endpoint))
        if code == "RevisionNotFound":
            raise InspectionError(hub_files.no_revision(self._model, self._revision, self._hub.endpoint))
        if status in (401, 404) and code in (None, "RepoNotFound"):
            raise InspectionError(hub_files.missing(self._model, self._hub.endpoint))
        if status < 500 and status not in (408, 429):
            raise InspectionError(
                f"{self._hub.endpoint} refuses {self._model}: status {status}, {code or 'no reason'}."
            )
        raise Away(f"{self._hub.endpoint} answered with status {status}")


def ask(model: str, hub: Hub, revision: str = "") -> dict[str, Any]:
    """The facts of a model that this host has no copy of, as the hub tells them. Raises InspectionError."""
    if hub.offline:
        raise InspectionError(f"This host has no complete copy of {model}, and HF_HUB_OFFLINE keeps it off the hub.")
    try:
        files = hub.files(model, revision)
        return {**facts(files), "gated": files.gated}
    except Away as error:
        return {"unreachable": True, "why": str(error), "chat_template": None}


def _origin(url: str) -> tuple[str, str]:
    address = urlsplit(url)
    return address.scheme, address.netloc


def _proxy_for(url: str) -> str:
    """That of the environment, which huggingface_hub uses too; "" for none."""
    proxy = getproxies().get("https", "")
    if not proxy or not url.startswith("https:") or proxy_bypass(urlsplit(url).netloc):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _read(path: Path) -> str:
    """A token; "" for a file that isn't there or holds something else."""
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return text if text.isascii() and text.isprintable() else ""


def _sizes(info: Mapping[str, Any]) -> dict[str, int]:
    """File name -> bytes."""
    siblings = info.get("siblings")
    found: dict[str, int] = {}
    for sibling in siblings if isinstance(siblings, list) else []:
        if isinstance(sibling, dict) and isinstance(sibling.get("rfilename"), str):
            size = sibling.get("size")
            found[sibling["rfilename"]] = size if isinstance(size, int) and size > 0 else 0
    return found


def _counted(info: Mapping[str, Any]) -> tuple[int | None, dict[str, int]]:
    """Parameters as the hub has counted them: all, and by type."""
    safetensors = info.get("safetensors")
    by_type = safetensors.get("parameters") if isinstance(safetensors, dict) else None
    if not isinstance(by_type, dict):
        return None, {}
    dtypes = {str(name): count for name, count in by_type.items() if isinstance(count, int) and count > 0}
    return sum(dtypes.values()) or None, dtypes


def _metadata(index: Mapping[str, Any], name: str) -> int:
    metadata = index.get("metadata")
    value = metadata.get(name) if isinstance(metadata, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
