"""The tasks of a step, and the sessions of the agents that work on them. Everything here runs on one event loop.

A task is one completion of a prompt's group. It is handed to one agent at a time. An agent that doesn't end its session
in time is considered lost: its task is handed out once more, and if that agent is lost too, the task ends without a
score.
"""

import asyncio
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workers.contract.reports.metric_names import is_finite
from workers.trainer.gateway.branches import Branches
from workers.trainer.keyed_endpoint import HttpRefusal

MAX_TRIES = 2
_MAX_ENDED = 20_000
"""Maximum number of ended sessions whose end can still be explained."""


@dataclass
class AgentTask:
    row: Mapping[str, Any]
    prompt: Any
    evaluation: bool = False
    """True if the task belongs to an evaluation, which isn't trained on."""
    handed_out: int = 0
    session: "AgentSession | None" = None
    """Session whose completion is used, set once it has ended or the last agent is lost."""


@dataclass
class AgentSession:
    id: str
    task: AgentTask
    began: float
    branches: Branches = field(default_factory=Branches)
    reward: float | None = None
    gone: bool = False
    seconds: float = 0.0
    requests: int = 0
    timer: asyncio.TimerHandle | None = None


class SessionManager:
    """The manager that hands out tasks and keeps the open sessions."""

    def __init__(self, *, session_s: float) -> None:
        self._session_s = session_s
        self._tasks: Sequence[AgentTask] = ()
        self._waiting: deque[AgentTask] = deque()
        self._open: dict[str, AgentSession] = {}
        self._ended: OrderedDict[str, HttpRefusal] = OrderedDict()
        self._changed = asyncio.Condition()
        self._closed = False
        self.done = threading.Event()
        self.on_done: Callable[[], None] = lambda: None
        self.heard_at = time.monotonic()
        """Time of time.monotonic() when an agent last received a task or sent a request."""
        self.gone = 0
        """Number of sessions of the current step whose agent is lost."""

    @property
    def open_sessions(self) -> int:
        return len(self._open)

    # --- the trainer's side ---------------------------------------------------------------------------------------

    async def begin(self, tasks: Sequence[AgentTask]) -> None:
        self._tasks, self._waiting, self.gone = tasks, deque(tasks), 0
        self.done.clear()
        await self._wake()

    async def close(self) -> None:
        """End all sessions, and tell waiting agents that the run has ended."""
        self._closed = True
        for session in list(self._open.values()):
            self._drop(session, HttpRefusal(410, "The run has ended, and so has this session."))
        await self._wake()

    # --- the agents' side -----------------------------------------------------------------------------------------

    async def open_session(self, wait_s: float) -> AgentSession | None:
        """Open and return a session on the next task, or None if there is none within `wait_s`. Raises HttpRefusal if
        the run has ended."""
        try:
            async with self._changed:
                await asyncio.wait_for(self._changed.wait_for(lambda: self._waiting or self._closed), wait_s)
        except TimeoutError:
            return None
        if self._closed:
            raise HttpRefusal(410, "The run has ended. There are no more tasks.")
        if not self._waiting:
            return None  # another waiting agent was faster
        task = self._waiting.popleft()
        task.handed_out += 1
        self.heard_at = time.monotonic()
        session = AgentSession(secrets.token_urlsafe(12), task, self.heard_at)
        session.timer = asyncio.get_running_loop().call_later(self._session_s, self._lose, session)
        self._open[session.id] = session
        return session

    def requeue(self, session: AgentSession) -> None:
        """Drop a session that never reached its agent, and requeue its task."""
        session.task.handed_out -= 1
        self._drop(session, HttpRefusal(410, "The session never reached its agent."))
        self._waiting.appendleft(session.task)
        self._waker = asyncio.ensure_future(self._wake())

    def find(self, session_id: str) -> AgentSession:
        """Return an open session. Raises HttpRefusal with the reason if it isn't open."""
        if (session := self._open.get(session_id)) is not None:
            self.heard_at = time.monotonic()
            return session
        if (refusal := self._ended.get(session_id)) is not None:
            raise HttpRefusal(refusal.status, refusal.text)
        raise HttpRefusal(404, f"There is no session {session_id[:64]!r}. Request a task first: POST /v1/sessions.")

    def score(self, session_id: str, reward: object) -> AgentSession:
        session = self.find(session_id)
        if not isinstance(reward, int | float) or not is_finite(reward):
            raise HttpRefusal(400, 'The reward must be a finite number: {"reward": 1.0}.')
        if session.reward is not None:
            raise HttpRefusal(409, f"The session already has a reward, {session.reward:g}, which can't be changed.")
        session.reward = float(reward)
        return session

    def end(self, session_id: str, reward: object = None) -> AgentSession:
        session = self.find(session_id)
        if reward is not None:
            self.score(session_id, reward)
        session.task.session = session
        self._drop(session, HttpRefusal(409, "The session has already ended. Request another task."))
        self._check_done()
        return session

    # --- inside ---------------------------------------------------------------------------------------------------

    def _lose(self, session: AgentSession) -> None:
        self.gone += 1
        is_retried = session.task.handed_out < MAX_TRIES
        task = "its task was handed out again" if is_retried else "its task has no completion"
        self._drop(session, HttpRefusal(410, f"The session took longer than {self._session_s:g} s, and {task}."))
        if is_retried:
            self._waiting.append(session.task)
            self._waker = asyncio.ensure_future(self._wake())
        else:
            session.gone, session.task.session = True, session
            self._check_done()

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _drop(self, session: AgentSession, refusal: HttpRefusal) -> None:
        self._open.pop(session.id, None)
        session.seconds = time.monotonic() - session.began
        if session.timer is not None:
            session.timer.cancel()
        self._ended[session.id] = refusal
        while len(self._ended) > _MAX_ENDED:
            self._ended.popitem(last=False)

    def _check_done(self) -> None:
        if self._tasks and all(task.session is not None for task in self._tasks):
            self.done.set()
            self.on_done()
