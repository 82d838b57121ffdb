"""An HTTP endpoint in OpenAI's style that requires a key, in a thread with its own event loop.

Served models and the rollout gateway listen through it. Errors have the shape that OpenAI's clients read.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from aiohttp import web

from workers.trainer.configuration.spec import TrainerError

T = TypeVar("T")
Handler = Callable[..., Awaitable[web.StreamResponse]]
"""Function that responds to a request; handlers of `chat_routes` also get `chat`."""
MAX_BODY_S = 120.0
_SILENT_LOGGER = logging.getLogger(f"{__name__}.silent")
_SILENT_LOGGER.addHandler(logging.NullHandler())
_SILENT_LOGGER.propagate = False
"""Logger that discards everything: aiohttp would log clients' addresses, and errors of handlers are printed here."""
_ERROR_TYPES = {401: "authentication_error", 429: "rate_limit_error"}


class HttpRefusal(Exception):
    """Raised to refuse a request with an error status; the text is for its sender."""

    def __init__(self, status: int, text: str, code: str | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.code = status, text, code


class KeyedEndpoint:
    """An endpoint that listens from `open` to `close`. Every path except /health requires `Authorization: Bearer
    KEY`."""

    body_limit: int
    max_connections: int | None = None
    """Approximate number of connections beyond which new ones are closed immediately; None for no limit."""
    backlog = 1024
    """Number of connections that are accepted together, and by which `max_connections` may be exceeded."""
    idle_s = 3600.0
    no_such_path: str

    def __init__(self, *, digest: str) -> None:
        """Create the endpoint. `digest`: the SHA-256 of the key, in hex."""
        self._digest = digest.encode()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="http", daemon=True)
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None

    def open(self, host: str, port: int, *routes: web.RouteDef) -> str:
        """Listen on `port` (any free one if 0) with `routes`, by default the endpoint's own, and return the address."""
        self._thread.start()
        try:
            port = self.run(self._listen(host, port, routes or self.routes()))
        except OSError as error:
            raise TrainerError(f"Can't listen on {host}, port {port}: {error.strerror}.") from error
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the endpoint's loop, from another thread, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self.run(self.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)

    def routes(self) -> list[web.RouteDef]:
        return []

    async def stop(self) -> None:
        """Stop listening and close all connections; requests in progress get two seconds to finish."""
        if self._listening is not None:
            self._listening.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _listen(self, host: str, port: int, routes: Sequence[web.RouteDef]) -> int:
        app = web.Application(middlewares=[self._guard], client_max_size=self.body_limit)
        app.add_routes([web.get("/health", self._health), *routes])
        self._runner = web.AppRunner(
            app, access_log=None, logger=_SILENT_LOGGER, shutdown_timeout=2.0, keepalive_timeout=self.idle_s
        )
        await self._runner.setup()
        self._listening = await self._loop.create_server(self._connection, host, port, backlog=self.backlog)
        return int(self._listening.sockets[0].getsockname()[1])

    def _connection(self) -> asyncio.BaseProtocol:
        assert self._runner is not None  # noqa: S101  # set before the endpoint listens
        server = self._runner.server
        assert server is not None  # noqa: S101  # `setup` has made it
        is_full = self.max_connections is not None and len(server.connections) >= self.max_connections
        return _ClosingProtocol() if is_full else server()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.path != "/health" and not self._allows(request.headers.get("Authorization", "")):
                raise HttpRefusal(401, "The key is missing or wrong. Send `Authorization: Bearer KEY`.")
            return await handler(request)
        except HttpRefusal as refusal:
            return _error(refusal.status, refusal.text, refusal.code)
        except (web.HTTPNotFound, web.HTTPMethodNotAllowed):
            return _error(404, self.no_such_path)
        except web.HTTPException as error:
            return _error(error.status, error.reason)
        except ConnectionError:
            raise  # the client has hung up
        except Exception as error:
            traceback.print_exc()
            return _error(500, type(error).__name__)

    def _allows(self, authorization: str) -> bool:
        kind, _, key = authorization.partition(" ")
        digest = hashlib.sha256(key.strip().encode(errors="replace")).hexdigest().encode()
        return hmac.compare_digest(digest, self._digest) and kind.lower() == "bearer"

    async def _health(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})


async def body_of(request: web.Request) -> dict[str, Any]:
    """Read and return the request's JSON object, or {} for an empty body. Raises HttpRefusal if the body is too long,
    arrives too slowly, or isn't a JSON object."""
    length, limit = request.content_length or 0, request.client_max_size
    if length > limit:
        raise HttpRefusal(413, f"The body has {length:,} bytes; the limit is {limit:,}.")
    try:
        async with asyncio.timeout(MAX_BODY_S):
            content = await request.read()
    except TimeoutError:
        raise HttpRefusal(408, f"The body did not arrive within {MAX_BODY_S:g} s.") from None
    try:
        document = json.loads(content) if content else {}
    except (ValueError, RecursionError):
        raise HttpRefusal(400, "The body is not valid JSON.") from None
    if not isinstance(document, dict):
        raise HttpRefusal(400, "Send a JSON object.")
    return document


class _ClosingProtocol(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def error_body(status: int, text: str, code: str | None = None) -> dict[str, Any]:
    kind = _ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": text, "type": kind, "code": code}}


def _error(status: int, text: str, code: str | None = None) -> web.Response:
    return web.json_response(error_body(status, text, code), status=status)


def chat_routes(prefix: str, handler: Handler) -> list[web.RouteDef]:
    """Return the routes of OpenAI's chat completions and completions, with one handler, which gets `chat`."""
    return [
        web.post(f"{prefix}/v1/chat/completions", partial(handler, chat=True)),
        web.post(f"{prefix}/v1/completions", partial(handler, chat=False)),
    ]


def models_response(names: Sequence[str], **details: Any) -> web.Response:
    """Return a response with a list of models in OpenAI's format."""
    return web.json_response({"object": "list", "data": [{"id": name, "object": "model", **details} for name in names]})
