"""Django's ASGI handler, with each request handled in a single thread of a pool.

Our code is synchronous. Django's handler runs every middleware that can be async as async, switches threads for each
half of it, and starts a thread with a new database connection per request: several times the cost of a supervisor's
sync, all under the GIL. Here a request switches threads once, and threads keep their connections for CONN_MAX_AGE. The
module is async because it is an ASGI application; it does no other work.
"""

import asyncio
import contextlib
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any

from asgiref.sync import sync_to_async
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.db import close_old_connections
from django.http import FileResponse
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from controlplane.platform.confined.limits import client_waits
from controlplane.platform.http.body_limit import Message
from controlplane.platform.http.form_fields import FormRequest

THREADS = 64
"""Number of threads; most of them wait for a database lock or for an unavailable database."""


class OneThread(ASGIHandler):
    request_class = FormRequest

    def __init__(self, threads: int = THREADS) -> None:
        super().__init__()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="request")

    def load_middleware(self, is_async: bool = False) -> None:
        super().load_middleware(is_async=False)

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        with body:
            client = _Client(receive)
            client_waits.set(client.waits)
            try:
                response = await self._in_thread(self._respond, scope, body)
            finally:
                client.stop_listening()
            if not response.streaming:
                await self.send_response(response, send)
                return
            try:
                await self._stream(response, receive, send)
            finally:
                await self._in_thread(response.close)

    def _respond(self, scope: Message, body: IO[bytes]) -> Any:
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=type(self), scope=scope)
        request, refusal = self.create_request(scope, body)
        response: Any = refusal if request is None else self.get_response(request)
        response._handler_class = type(self)
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        if response.streaming:
            close_old_connections()  # streamed content uses its own connection; the request may end in another thread
        else:
            response.close()  # ends the request for Django; content to be sent stays
        return response

    async def _stream(self, response: HttpResponseBase, receive: Any, send: Any) -> None:
        send_task = asyncio.create_task(self.send_response(response, send))
        disconnect_task = asyncio.create_task(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait((send_task, disconnect_task), return_when=asyncio.FIRST_COMPLETED)
            if send_task.done():
                send_task.result()
        finally:
            for task in (send_task, disconnect_task):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, RequestAborted):
                    await task

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        # sync_to_async, because some views use the event loop (static files).
        return await sync_to_async(function, thread_sensitive=False, executor=self._threads)(*arguments)


class _Client:
    """The client of a request whose body has arrived. Only if a thread asks is it listened for that it disconnects."""

    def __init__(self, receive: Any) -> None:
        self._receive, self._loop = receive, asyncio.get_running_loop()
        self._listening: Future[None] | None = None

    def waits(self) -> bool:
        """Return whether the client still waits. Call this in the request's thread."""
        if self._listening is None:
            self._listening = asyncio.run_coroutine_threadsafe(self._until_gone(), self._loop)
        return not self._listening.done()

    def stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.cancel()

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
