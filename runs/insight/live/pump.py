"""Delivery from the database to a web process's viewers: one subscription, one reader per watched run, bounded queues.

This is the asynchronous counterpart of consumers.py. A reader reads and encodes new rows once and keeps the last
frames. Viewers read these at their own pace; one that falls behind catches up from the database to the reader.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

import redis.asyncio
from channels.db import database_sync_to_async
from django.conf import settings
from django.utils import timezone
from redis.exceptions import RedisError

from controlplane.catalogue.hardware import host_commands
from runs.engine import hints, queries
from runs.engine.models import Attempt
from runs.engine.states import ON_HOST
from runs.insight.live import frames
from runs.insight.live.frames import FrameExtras, StreamCursor, StreamFrame
from workers.contract.wire.names import Task

log = logging.getLogger(__name__)

FRAME_S = 0.1
"""Minimum interval between frames of a run, longer if it has more than VIEWERS_AT_FULL_RATE viewers."""
VIEWERS_AT_FULL_RATE = 200
LIST_S = 0.5
FALLBACK_S = 2.0
"""Interval at which readers poll without a hint: without Redis everything still arrives, only later."""
RETRY_S = 1.0
MAX_KEPT_FRAMES = 8
"""Frames of a run kept in memory; slower viewers catch up from the database."""

T = TypeVar("T")


async def from_store(read: Callable[[], T]) -> T:
    # Not thread-sensitive: otherwise all sockets of the process would share one thread.
    result: T = await database_sync_to_async(read, thread_sensitive=False)()
    return result


class Viewer:
    """An open run page. `send` blocks as long as the browser does."""

    def __init__(self, run_id: str, cursor: StreamCursor, send: Callable[[str], Awaitable[None]]) -> None:
        self.run_id = run_id
        self.wants_logs = False
        self._cursor = cursor
        self._send = send

    async def run(self, reader: "Reader") -> None:
        while (number := await self._catch_up(reader)) is not None:
            # The viewer has caught up: the reader's frames are consecutive, and the next one begins at this cursor.
            while (frame := await reader.frame(number)) is not None:
                await self._deliver(frame)
                number += 1

    async def _catch_up(self, reader: "Reader") -> int | None:
        """Catch up from the database to the reader's position. Return the number of the reader's next frame, or None if
        the run no longer exists."""
        while True:
            end, number = reader.end, reader.count
            frame = await reader.between(self._cursor, with_logs=self.wants_logs)
            if frame is None:
                return None
            await self._deliver(frame)
            if self._cursor == end:
                return number
            if not frame.has_more:
                # The page is ahead of the reader: wait for the reader to catch up.
                reader.hint.set()
                await reader.frame(number)

    async def _deliver(self, frame: StreamFrame) -> None:
        for text in frame.texts:
            await self._send(text)
        self._cursor = frame.cursor


class Reader:
    """Reader of one run for all its viewers. It numbers the frames and keeps the last ones."""

    def __init__(self, run_id: str, end: StreamCursor) -> None:
        self.run_id = run_id
        self.viewers: set[Viewer] = set()
        self.hint = asyncio.Event()
        self.end = end
        self.count = 0
        """Number of frames so far, which is also the number of the next frame."""
        self._frames: deque[StreamFrame] = deque(maxlen=MAX_KEPT_FRAMES)
        self._news = asyncio.Event()
        self._shown = FrameExtras()
        self._reads: dict[tuple[StreamCursor, StreamCursor, bool], asyncio.Task[StreamFrame | None]] = {}

    def resend_log_sizes(self) -> None:
        """Send the log sizes again, for a viewer that has just opened the logs."""
        self._shown.logs = None
        self.hint.set()

    async def frame(self, number: int) -> StreamFrame | None:
        """Wait for the frame with this number and return it, or None if it has been dropped."""
        while number >= self.count:
            await self._news.wait()
        index = number - self.count + len(self._frames)
        return self._frames[index] if index >= 0 else None

    async def between(self, base: StreamCursor, *, with_logs: bool) -> StreamFrame | None:
        """Read everything between `base` and the end of the last frame from the database. Identical concurrent
        requests, such as those of a thousand pages after a restart, share one read."""
        request = (base, end := self.end, with_logs)
        task = self._reads.get(request)
        if task is None:
            read_frame = partial(frames.read, self.run_id, base, FrameExtras(), with_logs=with_logs, end=end)
            task = self._reads[request] = asyncio.get_running_loop().create_task(from_store(read_frame))
            task.add_done_callback(lambda _: self._reads.pop(request))
        return await asyncio.shield(task)  # a viewer that leaves must not cancel the read for the others

    async def tick(self) -> None:
        await _wait(self.hint, FALLBACK_S)
        self.hint.clear()
        began = time.monotonic()
        logs = any(viewer.wants_logs for viewer in self.viewers)
        frame = await from_store(lambda: frames.read(self.run_id, self.end, self._shown, with_logs=logs))
        if frame is None:
            return
        if frame.texts or frame.cursor != self.end:
            self._publish(frame)
        if frame.has_more:
            self.hint.set()
        interval = FRAME_S * max(1.0, len(self.viewers) / VIEWERS_AT_FULL_RATE)
        await asyncio.sleep(max(0.0, interval - (time.monotonic() - began)))

    def _publish(self, frame: StreamFrame) -> None:
        self._frames.append(frame)
        self.count += 1
        self.end = frame.cursor
        self._news.set()  # wakes the waiting viewers
        self._news.clear()


class ListViewer:
    """An open list of runs, which receives the ids of changed runs at most twice a second."""

    def __init__(self, send: Callable[[list[str]], Awaitable[None]]) -> None:
        self._send = send
        self._changed: set[str] = set()
        self._some = asyncio.Event()

    def offer(self, run_id: str) -> None:
        self._changed.add(run_id)
        self._some.set()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            changed_ids, self._changed = sorted(self._changed), set()
            self._some.clear()
            await self._send(changed_ids)
            await asyncio.sleep(LIST_S)


class SocketSignIn:
    """A socket's signed-in user. `doubt` is set when the sign-in may have ended."""

    def __init__(self, user_id: int) -> None:
        self.user_id = user_id
        self.doubt = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Wait until the sign-in is in doubt, but at most `seconds`, because hints may be lost."""
        await _wait(self.doubt, seconds)
        self.doubt.clear()


class ViewerHub:
    """All viewers of one web process."""

    def __init__(self) -> None:
        self._readers: dict[str, Reader] = {}
        self._lists: set[ListViewer] = set()
        self.sign_ins: set[SocketSignIn] = set()
        """Sign-ins to watch. Their sockets must also join as viewers, which keeps the subscription open."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._figures: dict[str, tuple[object, ...]] = {}
        self._joined = asyncio.Event()

    def join(self, viewer: Viewer, end: StreamCursor) -> Reader:
        """Add a viewer and return the reader of its run. A new reader begins at `end`."""
        reader = self._readers.get(viewer.run_id)
        if reader is None:
            reader = self._readers[viewer.run_id] = Reader(viewer.run_id, end)
            self._start(f"reader {viewer.run_id}", reader.tick)
            self._joined.set()
        reader.viewers.add(viewer)
        self._start_shared_tasks()
        return reader

    def leave(self, viewer: Viewer) -> None:
        reader = self._readers.get(viewer.run_id)
        if reader is None:
            return
        reader.viewers.discard(viewer)
        if not reader.viewers:
            del self._readers[viewer.run_id]
            self._stop(f"reader {viewer.run_id}")
        self._stop_if_idle()

    def watch_logs(self, viewer: Viewer, watch: bool) -> None:
        viewer.wants_logs = watch
        if watch and (reader := self._readers.get(viewer.run_id)):
            reader.resend_log_sizes()

    def join_list(self, viewer: ListViewer) -> None:
        self._lists.add(viewer)
        if len(self._lists) == 1:
            self._figures = {}
            self._joined.set()
            self._start("list", self._list_tick)
        self._start_shared_tasks()

    def leave_list(self, viewer: ListViewer) -> None:
        self._lists.discard(viewer)
        if not self._lists:
            self._stop("list")
        self._stop_if_idle()

    def _start_shared_tasks(self) -> None:
        if "hints" not in self._tasks:
            self._start("hints", self._listen)
            self._start("watch", self._mark_watched)

    def _stop_if_idle(self) -> None:
        if not self._readers and not self._lists:
            self._stop("hints")
            self._stop("watch")

    def _start(self, name: str, tick: Callable[[], Awaitable[None]]) -> None:
        self._tasks[name] = asyncio.get_running_loop().create_task(_forever(name, tick), name=name)

    def _stop(self, name: str) -> None:
        if task := self._tasks.pop(name, None):
            task.cancel()

    async def _listen(self) -> None:
        """Receive hints until an error occurs, after which the subscription is renewed."""
        if not settings.REDIS_URL:
            await asyncio.sleep(FALLBACK_S)
            return
        # Idle for hours is normal here, so reads have no timeout.
        async with (
            redis.asyncio.Redis.from_url(settings.REDIS_URL, socket_timeout=None) as client,
            client.pubsub(ignore_subscribe_messages=True) as subscription,
        ):
            await subscription.subscribe(hints.CHANNEL)
            for reader in self._readers.values():
                reader.hint.set()
            for sign_in in self.sign_ins:
                sign_in.doubt.set()
            async for message in subscription.listen():
                self._handle_hint(message["data"])

    def _handle_hint(self, data: bytes) -> None:
        run_id, _, number = data.decode().partition(" ")
        if run_id == hints.PERSON:
            for sign_in in self.sign_ins:
                if number == str(sign_in.user_id):
                    sign_in.doubt.set()
            return
        if reader := self._readers.get(run_id):
            reader.hint.set()
        for viewer in self._lists:
            viewer.offer(run_id)

    async def _mark_watched(self) -> None:
        """Mark the runs that have viewers here, so that writers send hints, well before the previous marks expire."""
        self._joined.clear()
        names = [*self._readers, *([hints.LIST] if self._lists else [])]
        if settings.REDIS_URL and names:
            async with (
                redis.asyncio.Redis.from_url(settings.REDIS_URL, socket_timeout=2) as client,
                client.pipeline(transaction=False) as pipe,
            ):
                for name in names:
                    pipe.set(hints.watch_key(name), 1, ex=hints.WATCH_EXPIRES_S, get=True)
                before = await pipe.execute()
            newly_watched = [
                name for name, mark in zip(names, before, strict=True) if mark is None and name != hints.LIST
            ]
            if newly_watched:
                await from_store(lambda: wake_supervisors(newly_watched))
        await _wait(self._joined, hints.WATCH_EXPIRES_S / 3)

    async def _list_tick(self) -> None:
        """Poll the database for changed runs, in case hints were lost."""
        await asyncio.sleep(FALLBACK_S)
        now = await from_store(queries.fingerprints)
        if self._figures:
            for run_id, figures in now.items():
                if self._figures.get(run_id) != figures:
                    for viewer in self._lists:
                        viewer.offer(run_id)
        self._figures = now


def wake_supervisors(run_ids: Collection[str]) -> None:
    """Tell the hosts of these runs that somebody is watching, because unwatched supervisors send lines less often. The
    message may be lost."""
    now = timezone.now()
    attempts = Attempt.objects.filter(run__in=run_ids, status__in=ON_HOST, claimed_at__isnull=False)
    for attempt in attempts.select_related("host").only("run_id", "number", "host"):
        if attempt.host is None or not attempt.host.is_fresh(now):
            continue  # messages to an unreachable host would only be queued
        try:
            host_commands.send(attempt.host.name, Task.WATCH_RUN, [attempt.run_id, attempt.number])
        except host_commands.BrokerDown as error:
            log.debug("can't wake the supervisor of %s: %s", attempt.pk, error)
            return


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, ViewerHub] = WeakKeyDictionary()


def hub() -> ViewerHub:
    return _hubs.setdefault(asyncio.get_running_loop(), ViewerHub())


async def _forever(name: str, tick: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await tick()
        except (RedisError, OSError) as error:
            log.warning("%s: %s", name, error)
            await asyncio.sleep(RETRY_S)
        except Exception:  # loop boundary: a dead reader would freeze its viewers' pages
            log.exception("%s failed", name)
            await asyncio.sleep(RETRY_S)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
