"""The fast path of syncs, in front of Django: a supervisor's plain lines go directly to the group writer. A thousand
runs send hundreds of syncs per second, and the middleware, the session and the thread of each cost several times as
much as its lines. All other requests (an event that moves the status, a chat, a long body, a wrong token, any error) go
through Django, which can refuse them. The code is async because it is an ASGI application."""

import re
from typing import Annotated, Any

import msgspec
from django.conf import settings

from controlplane.platform.http.body_limit import App, Message, Receive, Send
from controlplane.platform.http.request_body import BadBody, decode, decompress
from controlplane.platform.http.tokens import attempt_token_fits
from runs.engine.states import FINAL
from runs.intake.host_api import ingest
from runs.intake.host_api.group_writer import GroupWriter, writer
from runs.intake.host_api.ingest import BadLine, Delivery
from workers.contract.reports.lines import MAX_SYNC_PAUSE_S, OutboxLine
from workers.contract.wire.names import StopMode

_SYNC = re.compile(r"/api/attempts/([^/]+)/sync")
MAX_BODY_BYTES = 64 * 2**10
"""Maximum size of a body, since a longer one would block the event loop. Unpacked, a body may be 4 times as large."""


class SyncBody(msgspec.Struct):
    lines: list[OutboxLine]
    seen: bool = True
    """False if a reaper sends the lines, which are then no sign of life."""
    turns_after: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Number of the last chat turn that the supervisor of a served model has. A warm server, which has no chat, sends
    it to learn which run uses it."""
    paced: bool = False
    """True if the supervisor understands `again_s`. Supervisors survive updates of the control plane, and earlier
    versions reject responses with unknown fields."""


def sync_response(
    ack: int, *, status: str, stop_mode: str, watched: bool, paced: bool, late: bool = False
) -> dict[str, Any]:
    """Build the response to a sync: the acknowledged seq, a stop, whether anybody is watching, and when to sync again.
    If lines are `late`, that is, waiting here to be stored, an unwatched run should sync later."""
    # An attempt that was given up (`host_lost`) while its supervisor lived on must stop training.
    stop = StopMode.NOW.value if status in FINAL else stop_mode or None
    document: dict[str, Any] = {"ack": ack, "stop": stop, "watched": watched}
    if paced and not watched:
        document["again_s"] = max(MAX_SYNC_PAUSE_S, settings.UNWATCHED_S) if late else settings.UNWATCHED_S
    return document


class SyncRoute:
    def __init__(self, app: App, group: GroupWriter = writer) -> None:
        self.app = app
        self._group = group

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        attempt_id, headers = _parse_sync(scope)
        if not attempt_id:
            await self.app(scope, receive, send)
            return
        body = await _read_body(receive)
        if body is None:
            return
        response = await self._respond(attempt_id, headers, body)
        if response is None:
            await self.app(scope, _replay(body, receive), send)
            return
        start = [(b"content-type", b"application/json"), (b"content-length", str(len(response)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": start})
        await send({"type": "http.response.body", "body": response})

    async def _respond(self, attempt_id: str, headers: dict[bytes, bytes], body: bytes) -> bytes | None:
        try:
            coding = headers.get(b"content-encoding", b"identity").decode("latin-1")
            sync = decode(decompress(body, coding, 4 * MAX_BODY_BYTES), SyncBody)
            ingest.check(sync.lines)
        except (BadBody, BadLine):
            return None
        if sync.turns_after is not None or not ingest.is_plain(sync.lines):
            return None
        stored_delivery = await self._group.store(Delivery(attempt_id, sync.lines, sync.seen))
        if stored_delivery is None:
            return None
        state = stored_delivery.state
        return msgspec.json.encode(
            sync_response(
                state.ack,
                status=state.status,
                stop_mode=state.stop_mode,
                watched=stored_delivery.watched,
                paced=sync.paced,
                late=stored_delivery.late,
            )
        )


def _parse_sync(scope: Message) -> tuple[str, dict[bytes, bytes]]:
    """Return the attempt id and the headers of a short, authorized sync; ("", {}) for other requests."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return "", {}
    match = _SYNC.fullmatch(scope["path"])
    if match is None:
        return "", {}
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"")
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    is_short = length.isdigit() and int(length) <= MAX_BODY_BYTES
    if not is_short or scheme.lower() != "bearer" or not attempt_token_fits(match[1], token.strip()):
        return "", {}
    return match[1], headers


async def _read_body(receive: Receive) -> bytes | None:
    """Read the body, whose declared length the protocol enforces; return None if the client has disconnected."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Build a `receive` that returns the body again, for Django."""
    is_first = True

    async def replayed() -> Message:
        nonlocal is_first
        if not is_first:
            return await receive()
        is_first = False
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
