"""Websockets for signed-in users, each with a cursor and a pump. The sign-in is checked while the socket is open."""

import asyncio
import json
import logging
from collections.abc import Coroutine
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs

from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.utils.crypto import constant_time_compare

from controlplane.platform.accounts.models import User
from runs.insight.live import frames
from runs.insight.live.pump import ListViewer, Reader, SocketSignIn, Viewer, from_store, hub

NOT_SIGNED_IN = 4401
NO_SUCH_RUN = 4404
FAILED = 1011

log = logging.getLogger(__name__)


class SignedInConsumer(AsyncWebsocketConsumer):
    """A consumer for signed-in users. Other connections are accepted before they are closed, so that the browser sees
    the close code 4401."""

    async def connect(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        await self.accept()
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            await self.close(NOT_SIGNED_IN)
            return
        self.user_id: int = user.pk
        self.session_key = self.scope["session"].session_key
        self.sign_in = SocketSignIn(user.pk)
        hub().sign_ins.add(self.sign_in)
        await self.begin()
        self.spawn(self._stay_signed_in())

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Answer pings and pass other messages to `hear`. Pages send pings because a dead network doesn't close a
        socket."""
        message = _message(text_data)
        if message.get("type") == "ping":
            await self.send_text('{"type":"pong"}')
        else:
            await self.hear(message)

    async def hear(self, message: dict[str, Any]) -> None:
        """Handle a message other than a ping."""

    async def begin(self) -> None:
        """Join the hub and start the pump."""
        raise NotImplementedError

    async def end(self) -> None:
        """Leave the hub."""

    async def disconnect(self, code: int) -> None:
        tasks = getattr(self, "tasks", [])
        for task in tasks:
            task.cancel()
        if (sign_in := getattr(self, "sign_in", None)) is not None:
            hub().sign_ins.discard(sign_in)
        await self.end()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine while the socket is open. If it fails, the socket closes and the browser reconnects."""
        self.tasks.append(asyncio.get_running_loop().create_task(self._guarded(work)))

    async def send_text(self, text: str) -> None:
        await self.send(text_data=text)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except OSError:
            # The browser disconnected during a send.
            log.debug("a socket of user %s was closed", self.user_id)
        except Exception:  # loop boundary: log the cause and close the socket
            log.exception("a websocket failed")
            await self.close(FAILED)

    async def _stay_signed_in(self) -> None:
        while await from_store(lambda: still_signed_in(self.session_key, self.user_id)):
            await self.sign_in.wait(settings.SOCKET_RECHECK_S)
        # The pump must not send another row while the socket closes.
        for task in self.tasks:
            if task is not asyncio.current_task():
                task.cancel()
        await self.close(NOT_SIGNED_IN)


class RunConsumer(SignedInConsumer):
    """The socket `/ws/runs/<id>/?after=N`, which sends rows stored after line N, followed by live updates."""

    viewer: Viewer | None = None

    async def begin(self) -> None:
        run_id = self.scope["url_route"]["kwargs"]["run_id"]
        after_seq = _whole_number(self.scope["query_string"], "after")
        cursors = await from_store(lambda: frames.start(run_id, after_seq))
        if cursors is None:
            await self.close(NO_SUCH_RUN)
            return
        cursor, end = cursors
        self.viewer = Viewer(run_id, cursor, self.send_text)
        self.spawn(self._pump(self.viewer, hub().join(self.viewer, end)))

    async def end(self) -> None:
        if self.viewer is not None:
            hub().leave(self.viewer)

    async def hear(self, message: dict[str, Any]) -> None:
        if self.viewer is not None and message.get("type") == "logs":
            hub().watch_logs(self.viewer, message.get("watch") is True)

    async def _pump(self, viewer: Viewer, reader: Reader) -> None:
        await viewer.run(reader)
        await self.close(NO_SUCH_RUN)


class RunListConsumer(SignedInConsumer):
    """The socket `/ws/runs/`, which sends the ids of changed runs."""

    viewer: ListViewer | None = None

    async def begin(self) -> None:
        self.viewer = ListViewer(self._send_changed)
        hub().join_list(self.viewer)
        self.spawn(self.viewer.run())

    async def end(self) -> None:
        if self.viewer is not None:
            hub().leave_list(self.viewer)

    async def _send_changed(self, run_ids: list[str]) -> None:
        await self.send_text(json.dumps({"type": "changed", "runs": run_ids}))


class UnknownConsumer(SignedInConsumer):
    """A socket at any other address, closed at once."""

    async def begin(self) -> None:
        await self.close(NO_SUCH_RUN)


def _message(text_data: str | None) -> dict[str, Any]:
    try:
        message = json.loads(text_data or "")
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def still_signed_in(session_key: str | None, user_id: int) -> bool:
    """Return whether the session still exists, belongs to this user, and matches the account's password and status."""
    if session_key is None:
        return False
    store = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    data = store.load()
    user = User.objects.filter(pk=user_id, is_active=True).first()
    if user is None or data.get(SESSION_KEY) != str(user_id):
        return False
    return constant_time_compare(data.get(HASH_SESSION_KEY, ""), user.get_session_auth_hash())


def _whole_number(query_string: bytes, name: str) -> int:
    try:
        return max(0, int(parse_qs(query_string.decode()).get(name, ["0"])[0]))
    except ValueError:
        return 0
