"""The client for the control plane: HTTP with a bearer token and a time-out for each call.

For threads and Celery's short tasks only, never the supervisor's main thread.
"""

import gzip
import hashlib
import json
import os
import ssl
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx

from workers.contract.reports.lines import ClaimAnswer, SyncAnswer
from workers.contract.wire.artifacts import StoreAnswer, StoreRequest, Storing
from workers.contract.wire.documents import ContractError, from_dict, to_dict
from workers.contract.wire.joining import JOIN, LEAVE_PATH, REVOKED, Leaving
from workers.settings import HostSettings

MIN_GZIP_BYTES = 4096

T = TypeVar("T")


class ControlError(Exception):
    """Raised when the control plane can't be reached or refuses a request."""


class Unreachable(ControlError):
    """Raised when the control plane didn't respond, or something else did, such as a proxy: try again later."""


class ControlRefused(ControlError):
    """Raised when the control plane refused the request and would refuse it again."""

    def __init__(self, status: int, text: str, *, where: str = "") -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status
        self.text = text
        self.where = where

    @property
    def is_revoked(self) -> bool:
        """True if this host's credentials were revoked, so that its runs must end."""
        return self.where == REVOKED


class Control:
    """A client for one thread. All requests raise ControlError. `alive`: whether a sync is the supervisor's
    heartbeat."""

    def __init__(
        self,
        *,
        url: str,
        token: str,
        timeout_s: float,
        url_file: Path | None = None,
        ca_file: Path | None = None,
        alive: bool = True,
    ) -> None:
        self._url = url.rstrip("/")
        self._url_file = url_file
        self._alive = alive
        self.token = token
        # No proxies from the environment: requests to the control plane go nowhere else.
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            verify=ssl.create_default_context(cafile=ca_file) if ca_file else True,
            timeout=httpx.Timeout(timeout_s, connect=min(3.0, timeout_s)),
            trust_env=False,
        )

    @classmethod
    def of(cls, settings: HostSettings, token: str, *, follow: bool = False, alive: bool = True) -> "Control":
        """Create a client. `follow`: whether to follow a control plane that moves, using the file with its current
        address that the host's worker writes."""
        return cls(
            url=settings.control_url,
            token=token,
            timeout_s=settings.http_timeout_s,
            url_file=settings.control_url_file if follow else None,
            ca_file=settings.ca_file,
            alive=alive,
        )

    def close(self) -> None:
        self._http.close()

    def claim(self, attempt_id: str, *, schema: int, host: str, pid: int, boot_id: str) -> ClaimAnswer:
        body = {"schema": schema, "host": host, "pid": pid, "boot_id": boot_id}
        return _parse(ClaimAnswer, self._post(f"/api/attempts/{attempt_id}/claim", body))

    def fetch_dataset(self, attempt_id: str, path: Path) -> str:
        """Stream the dataset to `path` and return the sha256 of the received bytes."""
        return self._fetch(f"/api/attempts/{attempt_id}/dataset", path)

    def fetch_source(self, attempt_id: str, sha256: str, path: Path) -> str:
        """Stream a further dataset of a mix to `path` and return the sha256 of the received bytes."""
        return self._fetch(f"/api/attempts/{attempt_id}/sources/{sha256}", path)

    def fetch_corpus(self, attempt_id: str, sha256: str, path: Path) -> str:
        """Stream a corpus of the run to `path` and return the sha256 of the received bytes."""
        return self._fetch(f"/api/attempts/{attempt_id}/corpora/{sha256}", path)

    def _fetch(self, address: str, path: Path) -> str:
        digest = hashlib.sha256()
        try:
            with self._http.stream("GET", f"{self._url}{address}") as response:
                if response.status_code != 200:
                    response.read()
                    raise _error(response)
                with open(path, "wb", opener=_private) as file:
                    for chunk in response.iter_bytes(1 << 16):
                        digest.update(chunk)
                        file.write(chunk)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        return digest.hexdigest()

    def sync(self, attempt_id: str, lines: Sequence[bytes], *, turns_after: int | None = None) -> SyncAnswer:
        """Send lines of the outbox; return the response. `turns_after`: the last turn received of a model's chat."""
        body = {"seen": self._alive, "paced": True, **({} if turns_after is None else {"turns_after": turns_after})}
        return _parse(SyncAnswer, self._post_lines(f"/api/attempts/{attempt_id}/sync", body, lines))

    def send_samples(self, attempt_id: str, *, first_line: int, lines: Sequence[bytes]) -> int:
        """Send lines of completions and return how many lines the control plane has."""
        return _number(
            self._post_lines(f"/api/attempts/{attempt_id}/samples", {"first_line": first_line}, lines), "ack"
        )

    def send_log(self, attempt_id: str, name: str, *, offset: int, data: bytes) -> int:
        """Send bytes of a log and return how many bytes the control plane has."""
        document = self._request(
            f"/api/attempts/{attempt_id}/logs/{name}?offset={offset}", data, "application/octet-stream"
        )
        return _number(document, "size")

    def send_archive(self, attempt_id: str, *, offset: int, of: int, data: bytes) -> int:
        """Send a part of a model's archive of `of` bytes and return how many bytes the control plane has."""
        path = f"/api/attempts/{attempt_id}/archive?offset={offset}&of={of}"
        return _number(self._request(path, data, "application/octet-stream", compress=False), "size")

    def send_reaped(self, attempt_id: str, body: dict[str, Any], lines: Sequence[bytes]) -> None:
        self._post_lines(f"/api/attempts/{attempt_id}/reaped", body, lines)

    def send_not_launched(self, attempt_id: str, detail: str, *, final: bool) -> None:
        body = {"detail": detail, "final": final}
        self._post(f"/api/attempts/{attempt_id}/not_launched", body, compress=False)

    def send_deleted(self, attempt_id: str, *, path: str, problem: str) -> None:
        """Report a deletion. `path`: the deleted checkpoint, or "" for the whole attempt. `problem`: why it could not
        be deleted, or ""."""
        self._post(f"/api/attempts/{attempt_id}/deleted", {"path": path, "problem": problem}, compress=False)

    def ask_store(self, attempt_id: str, *, folder: str = "") -> StoreAnswer:
        """Request the artifact store's address, and the manifest of the checkpoint in `folder`."""
        return _parse(StoreAnswer, self._post(f"/api/attempts/{attempt_id}/store", {"folder": folder}, compress=False))

    def sign_for_store(self, attempt_id: str, request: StoreRequest) -> str:
        """Request the signed URL of a request to the artifact store."""
        reply = self._post(f"/api/attempts/{attempt_id}/store/signature", to_dict(request), compress=False)
        return str(reply.get("url"))

    def send_stored(self, attempt_id: str, *, path: str, state: Storing, problem: str = "", manifest: str = "") -> None:
        """Report the state of a checkpoint in the store. `manifest`: the SHA-256 of a stored checkpoint's manifest."""
        body = {"path": path, "state": state, "problem": problem, "manifest": manifest}
        self._post(f"/api/attempts/{attempt_id}/stored", body, compress=False)

    def join(self, body: dict[str, Any]) -> dict[str, Any]:
        """Exchange a code for this host's credentials; the only request without a token."""
        return self._post(JOIN, body, compress=False)

    def announce(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._post("/api/hosts/announce", body, compress=False)

    def leave(self, name: str, reason: Leaving) -> None:
        self._post(LEAVE_PATH, {"name": name, "how": reason}, compress=False)

    def answer_inspection(self, inspection_id: int, answer: dict[str, Any]) -> bool:
        """Send the result of an inspection; return whether the control plane wants the tokenizer in it."""
        reply = self._post(f"/api/inspections/{inspection_id}", {"answer": answer}, compress=False)
        return reply.get("want_tokenizer") is True

    def send_tokenizer(self, host: str, inspection_id: int, body: Iterable[bytes], size: int) -> None:
        """Send a tokenizer. `body`: its `size` bytes, in the format of workers.contract.wire.tokenizers."""
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        self._send(f"/api/hosts/{host}/inspections/{inspection_id}/tokenizer", body, headers)

    def _post(self, path: str, body: dict[str, Any], *, compress: bool = True) -> dict[str, Any]:
        return self._request(path, _json(body), "application/json", compress=compress)

    def _post_lines(self, path: str, body: dict[str, Any], lines: Sequence[bytes]) -> dict[str, Any]:
        # The lines are JSON already, and sent unchanged.
        data = b'%s,"lines":[%s]}' % (_json(body)[:-1], b",".join(lines))
        return self._request(path, data, "application/json")

    def _request(self, path: str, data: bytes, content_type: str, *, compress: bool = True) -> dict[str, Any]:
        headers = {"Content-Type": content_type}
        if compress and len(data) >= MIN_GZIP_BYTES:
            data, headers["Content-Encoding"] = gzip.compress(data, compresslevel=3), "gzip"
        response = self._send(path, data, headers)
        try:
            document = response.json()
        except ValueError as error:
            raise Unreachable(f"invalid JSON from {self._url}") from error
        if not isinstance(document, dict):
            raise Unreachable(f"JSON that isn't an object from {self._url}")
        return document

    def _send(self, path: str, content: bytes | Iterable[bytes], headers: dict[str, str]) -> httpx.Response:
        try:
            response = self._http.post(self._url + path, content=content, headers=headers)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if response.status_code != 200:
            raise _error(response)
        return response

    def _unreachable(self, error: httpx.HTTPError) -> Unreachable:
        """Create an error, and reread the control plane's address, which may have changed."""
        url = self._url
        if self._url_file is not None:
            with suppress(FileNotFoundError):  # no worker has written it: keep the initial address
                self._url = self._url_file.read_text().strip().rstrip("/") or self._url
        return Unreachable(f"{url}: {error or type(error).__name__}")


def _json(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


def _error(response: httpx.Response) -> ControlError:
    if response.is_redirect:
        target = response.headers.get("Location", "")[:200]
        return Unreachable(
            f"{response.url.copy_with(path=None, query=None)} redirects to {target}. Redirects are not followed, "
            "because the token is sent to one address only. Use the address that responds without a redirect."
        )
    text, where = _message(response)
    if response.status_code in (408, 425, 429) or response.status_code >= 500:
        return Unreachable(f"HTTP {response.status_code}: {text}")
    return ControlRefused(response.status_code, text, where=where)


def _message(response: httpx.Response) -> tuple[str, str]:
    """Return an error's message, and the field or place that the control plane named, or ""."""
    try:
        error = response.json()["error"]
        return " ".join(part for part in (str(error["what"]), str(error["fix"])) if part), str(error["where"])
    except (ValueError, LookupError, TypeError):
        return response.text[:300], ""


def _parse(cls: type[T], document: dict[str, Any]) -> T:
    try:
        return from_dict(cls, document)
    except ContractError as error:
        raise Unreachable(f"a response that violates the contract: {error}") from error


def _number(document: dict[str, Any], name: str) -> int:
    value = document.get(name)
    if not isinstance(value, int):
        raise Unreachable(f"a response without {name!r}")
    return value


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
