"""Client of the API, which retries while the server is away, waits as long as the server asks, and explains errors."""

import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx

from controlplane.ctl.config import Access

MAX_ATTEMPTS = 4
TIMEOUT_S = 30.0
MAX_WAIT_S = 30.0


class RequestRefused(Exception):
    """Error response from the control plane, or refusal of a request before it is sent."""

    def __init__(self, status: int, what: str, where: str, fix: str, payload: dict[str, Any] | None = None) -> None:
        super().__init__(what)
        self.status, self.what, self.where, self.fix, self.payload = status, what, where, fix, payload or {}

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        return f"{self.what}{where} {self.fix}".strip()


class ServerUnreachable(Exception):
    """Failure to reach the control plane."""


def path_of(*parts: object) -> str:
    """Join constants, IDs and names to a path of the API. Raises RequestRefused for a part that is empty or has
    characters with which a request would reach another operation."""
    for part in map(str, parts):
        if not part.isprintable() or part in ("", ".", "..") or set(part) & set("/\\?#%"):
            raise RequestRefused(0, f"{part[:100]!r} is not an ID or a name.", "", "List the existing objects.")
    return "/".join(quote(str(part)) for part in parts)


class Client:
    """Client with an API token. `pause` replaces `time.sleep` in tests."""

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
        """Send a request to any path in the API's description, and return the response. Raises RequestRefused for a
        path outside the API, because the request contains the token."""
        api_path = path.removeprefix("/").removeprefix("api/v1/")
        if api_path.startswith("/") or ":" in api_path.partition("?")[0] or ".." in api_path:
            raise RequestRefused(0, f"{path} is not a path of the API.", "", f"See {self.url}/api/v1/openapi.json.")
        return self._send(method, api_path, **({} if body is None else {"json": body}))

    def items(self, path: str, *, limit: int, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield at most `limit` items of a list, fetching it page by page."""
        cursor = ""
        while limit > 0:
            page = self.get(path, limit=min(limit, 100), cursor=cursor, **query)
            yield from page["items"][:limit]
            limit, cursor = limit - len(page["items"]), page.get("next_cursor", "")
            if not cursor:
                return

    def _json(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        response = self._send(method, path, **request)
        try:
            content = response.json()
        except ValueError:
            raise RequestRefused(
                response.status_code, "The response is not JSON.", self.url, "Is this a control plane?"
            ) from None
        return content if isinstance(content, dict) else {"items": content}

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        # A request with an Idempotency-Key, such as a launch, takes effect only once.
        is_repeatable = method != "POST" or "Idempotency-Key" in request.get("headers", {})
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                response = self._http.request(method, path, **request)
            except (httpx.InvalidURL, httpx.LocalProtocolError, UnicodeError) as error:
                raise RequestRefused(0, f"The request can't be written: {error}.", "", "Check its values.") from None
            except httpx.HTTPError as error:
                if attempt == MAX_ATTEMPTS or not (is_repeatable or isinstance(error, httpx.ConnectError)):
                    raise ServerUnreachable(f"{self.url} can't be reached: {error or type(error).__name__}.") from None
                self.pause(0.5 * 2**attempt)
                continue
            if response.status_code not in (429, 503) or attempt == MAX_ATTEMPTS or "files" in request:
                return _checked(response, self.url)
            wait = response.headers.get("Retry-After", "")
            self.pause(min(MAX_WAIT_S, float(wait) if wait.isascii() and wait.isdecimal() else 1.0))
        raise AssertionError("the last attempt returns or raises")


def _checked(response: httpx.Response, url: str) -> httpx.Response:
    status = response.status_code
    if response.is_redirect:
        location = response.headers.get("Location", "another address")
        fix = "The token was not sent there. Use that address instead."
        raise RequestRefused(status, f"{url} redirects to {location}.", "", fix)
    if status < 400:
        return response
    try:
        content = response.json()
        error = content["error"]
        raise RequestRefused(status, error["what"], error["where"], error["fix"], content)
    except (ValueError, KeyError, TypeError):
        message = response.text.strip()[:200] if "html" not in response.headers.get("Content-Type", "") else ""
        raise RequestRefused(status, message or f"{url} responded with status {status}.", "", "") from None
