"""Requests to the API: retried while it can't be reached, delayed when it says so, with errors in words."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from controlplane.ctl.config import Access

TRIES = 4
TIMEOUT_S = 30.0
LONGEST_WAIT_S = 30.0


class RequestRefused(Exception):
    """An error that the control plane answered with."""

    def __init__(self, status: int, what: str, where: str, fix: str, answer: dict[str, Any] | None = None) -> None:
        super().__init__(what)
        self.status, self.what, self.where, self.fix, self.answer = status, what, where, fix, answer or {}

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        return f"{self.what}{where} {self.fix}".strip()


class ServerUnreachable(Exception):
    """A control plane that can't be reached."""


class Client:
    """A sender of requests with a token. `pause`: called instead of `time.sleep` in tests."""

    def __init__(
        self,
        access: Access,
        *,
        transport: httpx.BaseTransport | None = None,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.url, self.pause = access.url, pause
        self._http = httpx.Client(
            base_url=f"{access.url}/api/v1/",
            headers={"Authorization": f"Bearer {access.token}", "User-Agent": "grpoctl"},
            timeout=TIMEOUT_S,
            transport=transport,
        )

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        return self._json("GET", path, params={name: value for name, value in query.items() if value is not None})

    def text(self, path: str, **query: Any) -> str:
        return self._send("GET", path, params=query).text

    def post(self, path: str, body: dict[str, Any] | None = None, **request: Any) -> dict[str, Any]:
        return self._json("POST", path, **({"json": body or {}} if "files" not in request else {}), **request)

    def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._json("PATCH", path, json=body)

    def ask_json(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self.get(path) if method == "GET" else self._json(method, path, json=body)

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Send any operation, by its path in the API's description. Raises RequestRefused for a path that leads
        elsewhere, because the request has the token."""
        inside = path.removeprefix("/").removeprefix("api/v1/")
        if inside.startswith("/") or ":" in inside.partition("?")[0] or ".." in inside:
            raise RequestRefused(0, f"{path} is no path of the API.", "", f"See {self.url}/api/v1/openapi.json.")
        return self._send(method, inside, **({} if body is None else {"json": body}))

    def items(self, path: str, *, limit: int, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield the items of a list, page by page; at most `limit`."""
        cursor = ""
        while limit > 0:
            page = self.get(path, limit=min(limit, 100), cursor=cursor, **query)
            yield from page["items"][:limit]
            limit, cursor = limit - len(page["items"]), page.get("next_cursor", "")
            if not cursor:
                return

    def _json(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        answer = self._send(method, path, **request)
        try:
            content = answer.json()
        except ValueError:
            raise RequestRefused(
                answer.status_code, "The answer is no JSON.", self.url, "Is this a control plane?"
            ) from None
        return content if isinstance(content, dict) else {"items": content}

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        # Only what can be repeated without doing it twice: a launch has a key.
        repeatable = method != "POST" or "Idempotency-Key" in request.get("headers", {})
        for attempt in range(1, TRIES + 1):
            try:
                answer = self._http.request(method, path, **request)
            except httpx.HTTPError as error:
                if attempt == TRIES or not (repeatable or isinstance(error, httpx.ConnectError)):
                    raise ServerUnreachable(f"{self.url} can't be reached: {error or type(error).__name__}.") from None
                self.pause(0.5 * 2**attempt)
                continue
            if answer.status_code not in (429, 503) or attempt == TRIES or "files" in request:
                return _checked(answer, self.url)
            wait = answer.headers.get("Retry-After", "")
            self.pause(min(LONGEST_WAIT_S, float(wait) if wait.isascii() and wait.isdecimal() else 1.0))
        raise AssertionError("the last try returns or raises")


def _checked(answer: httpx.Response, url: str) -> httpx.Response:
    if answer.is_redirect:
        to = answer.headers.get("Location", "elsewhere")
        raise RequestRefused(
            answer.status_code, f"{url} redirects to {to}.", "", "The token was not sent there: use that address."
        )
    if answer.status_code < 400:
        return answer
    try:
        content = answer.json()
        error = content["error"]
        raise RequestRefused(answer.status_code, error["what"], error["where"], error["fix"], content)
    except (ValueError, KeyError, TypeError):
        text = answer.text.strip()[:200] if "html" not in answer.headers.get("Content-Type", "") else ""
        raise RequestRefused(answer.status_code, text or f"{url} answered {answer.status_code}.", "", "") from None
