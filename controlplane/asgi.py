"""The ASGI entry point: Django for HTTP, runs.pages.live.consumers for websockets (same origin, signed-in users)."""

import gc
import os
import sys
from typing import Any
from urllib.parse import urlsplit

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

import django

django.setup(set_prefix=False)

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.security.websocket import AllowedHostsOriginValidator, WebsocketDenier  # noqa: E402
from django.conf import settings  # noqa: E402

from controlplane.platform.http.api_throttle import ApiThrottle  # noqa: E402
from controlplane.platform.http.body_limit import BodyLimit  # noqa: E402
from controlplane.platform.http.one_thread import OneThread  # noqa: E402
from controlplane.setup.serving.body_sizes import body_limit  # noqa: E402
from runs.intake.host_api.sync_route import SyncRoute  # noqa: E402
from runs.urls import websocket_urlpatterns  # noqa: E402


class SameOrigin:
    """ASGI middleware that refuses websocket handshakes whose Origin differs from the requested address or port.

    If only the host name were checked, a page on another port of this machine could use the session cookie.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        headers = {name: value.decode("latin-1") for name, value in scope.get("headers", [])}
        origin = headers.get(b"origin", "")
        same_origin = urlsplit(origin).netloc.lower() == headers.get(b"host", "").lower() != ""
        if same_origin or origin in settings.CSRF_TRUSTED_ORIGINS:
            return await self.inner(scope, receive, send)
        return await WebsocketDenier()(scope, receive, send)


# Supervisors' lines and sockets share the interpreter with pages. A thread that renders a page yields it to a waiting
# thread after this many seconds, and a line needs it dozens of times on its way to a viewer. The default is 0.005.
sys.setswitchinterval(0.0005)

application = ProtocolTypeRouter(
    {
        "http": SyncRoute(ApiThrottle(BodyLimit(OneThread(), body_limit))),
        "websocket": SameOrigin(AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)))),
    }
)

# Objects loaded by now are never freed, and a full collection of them would stop every thread for 0.1 s.
gc.collect()
gc.freeze()
# A large body creates a million objects at once. By default, they would be searched for garbage 1,400 times meanwhile.
gc.set_threshold(50_000, 20, 20)
