"""Tasks and sessions of the gateway: who gets what, and what is refused to agents that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from workers.trainer.gateway.sessions import AgentSession, AgentTask, SessionManager
from workers.trainer.keyed_endpoint import HttpRefusal

At = Callable[[SessionManager], Coroutine[Any, Any, None]]


def run(work: At, *, session_s: float = 60.0) -> None:
    async def main() -> None:
        manager = SessionManager(session_s=session_s)
        await work(manager)

    asyncio.run(main())


def tasks(count: int) -> list[AgentTask]:
    return [AgentTask({"row": number}, f"task {number}") for number in range(count)]


async def taken(manager: SessionManager, wait_s: float = 5.0) -> AgentSession:
    session = await manager.open_session(wait_s)
    assert session is not None
    return session


def refused(status: int, words: str, act: Callable[[], object]) -> None:
    with pytest.raises(HttpRefusal, match=words) as caught:
        act()
    assert caught.value.status == status


def test_a_step_is_done_when_all_its_sessions_have_ended() -> None:
    async def work(manager: SessionManager) -> None:
        await manager.begin(tasks(2))
        first, second = await taken(manager), await taken(manager)
        manager.end(first.id, 1.0)
        assert not manager.done.is_set()
        manager.end(second.id)
        assert manager.done.is_set()
        assert [first.task.session, second.task.session] == [first, second]
        assert (first.reward, second.reward) == (1.0, None)

    run(work)


def test_more_agents_than_tasks_wait_for_the_next_step() -> None:
    async def work(manager: SessionManager) -> None:
        waiting = [asyncio.ensure_future(taken(manager)) for _ in range(2)]
        await manager.begin(tasks(1))
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), manager.open_sessions) == (1, 1)
        await manager.begin(tasks(1))
        await asyncio.gather(*waiting)
        assert manager.open_sessions == 2

    run(work)


def test_no_task_within_the_time_is_no_error() -> None:
    async def work(manager: SessionManager) -> None:
        assert await manager.open_session(0) is None

    run(work)


def test_a_session_that_is_sent_twice_counts_once() -> None:
    async def work(manager: SessionManager) -> None:
        await manager.begin(tasks(1))
        session = await taken(manager)
        manager.score(session.id, 0.5)
        refused(409, "already has a reward, 0.5", lambda: manager.score(session.id, 0.7))
        manager.end(session.id)
        refused(409, "already ended", lambda: manager.end(session.id, 0.9))
        assert session.reward == 0.5

    run(work)


def test_an_answer_after_the_step_has_closed_is_refused() -> None:
    async def work(manager: SessionManager) -> None:
        await manager.begin(tasks(1))
        session = await taken(manager)
        manager.end(session.id)
        await manager.begin(tasks(1))
        refused(409, "already ended", lambda: manager.find(session.id))
        refused(404, "no session", lambda: manager.find("another"))

    run(work)


def test_the_task_of_an_agent_that_goes_away_is_handed_out_once_more_and_then_has_no_score() -> None:
    async def work(manager: SessionManager) -> None:
        [task] = one = tasks(1)
        await manager.begin(one)
        lost = await taken(manager)
        again = await taken(manager)
        assert (again.task, again.id != lost.id) == (task, True)
        refused(410, "its task was handed out again", lambda: manager.end(lost.id, 1.0))
        while not manager.done.is_set():
            await asyncio.sleep(0)
        assert (again.gone, task.session, manager.gone) == (True, again, 2)
        refused(410, "its task has no completion", lambda: manager.end(again.id, 1.0))

    run(work, session_s=0.01)


def test_whoever_waits_learns_that_the_run_has_ended() -> None:
    async def work(manager: SessionManager) -> None:
        waiting = asyncio.ensure_future(manager.open_session(60))
        await asyncio.sleep(0)
        await manager.close()
        with pytest.raises(HttpRefusal, match="The run has ended") as caught:
            await waiting
        assert caught.value.status == 410

    run(work)


@pytest.mark.parametrize("reward", [None, "1", True, float("nan"), float("inf"), [1], 10**400])
def test_a_reward_is_a_finite_number(reward: object) -> None:
    async def work(manager: SessionManager) -> None:
        await manager.begin(tasks(1))
        session = await taken(manager)
        refused(400, "finite number", lambda: manager.score(session.id, reward))

    run(work)
