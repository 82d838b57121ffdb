"""The guard of a vLLM server: it refuses the requests of this machine's other users.

vLLM's key protects only some of its routes, and TRL's client sends none. But all clients are on this machine, so the
kernel knows which user opened each connection. The module runs inside vLLM.
"""

import os
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from workers.contract.wire import local_sockets

Message = MutableMapping[str, Any]

_ROOT = 0
FORWARDING_HEADERS = (b"forwarded", b"x-forwarded-for")
"""Headers by which uvicorn may take another address, or even port, for the client's. No client of ours sends them."""
_REFUSAL = b'{"error": {"message": "This server belongs to another user of this machine.", "code": 403}}'


class OwnUserOnly:
    """ASGI middleware, which vLLM's --middleware names."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app
        self._is_known = _kernel_responds()
        if not self._is_known:
            message = "The kernel doesn't tell whose a connection is: all local users can use this server."
            print(message, file=sys.stderr, flush=True)

    async def __call__(self, scope: Message, receive: Any, send: Callable[[Message], Awaitable[None]]) -> None:
        if scope["type"] == "lifespan" or not self._is_known or _is_own(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": _REFUSAL})


def _is_own(scope: Message) -> bool:
    client, server = scope.get("client"), scope.get("server")
    if client is None or server is None or any(name.lower() in FORWARDING_HEADERS for name, _ in scope["headers"]):
        return False
    owner = local_sockets.client_owner(client, server)
    return owner is not None and owner in {os.getuid(), _ROOT}


def _kernel_responds() -> bool:
    """Return whether the kernel can say which user opened a connection; some sandboxes' kernels can't."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
            client.connect(listener.getsockname())
            return local_sockets.client_owner(client.getsockname(), client.getpeername()) == os.getuid()
    except OSError:
        return False
