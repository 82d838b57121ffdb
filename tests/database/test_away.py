"""The database goes away while a run trains, or is cut in the middle of a commit: nothing is lost, nothing doubled,
and everything heals by itself."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import httpx
import psycopg
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from controlplane.platform.database import URL_VARIABLE, WAIT_VARIABLE
from tests.faults import invariants
from tests.faults.harness import ARun, Product
from tests.postgres import Postgres

pytestmark = pytest.mark.processes

SCALED = {WAIT_VARIABLE: "1", "GRPO_HTTP_TIMEOUT_S": "10"}
"""A supervisor waits for the answer, so that it is a 503 and not its own time-out that it lives with."""
SLOW_COMMITS = """
CREATE FUNCTION linger() RETURNS trigger AS 'BEGIN PERFORM pg_sleep(0.1); RETURN NULL; END' LANGUAGE plpgsql;
CREATE CONSTRAINT TRIGGER linger AFTER UPDATE ON runs_attempt DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION linger();
"""
NORMAL_COMMITS = "DROP TRIGGER IF EXISTS linger ON runs_attempt; DROP FUNCTION IF EXISTS linger"
COMMITTING = "SELECT pid FROM pg_stat_activity WHERE datname = 'away' AND state = 'active' AND query ILIKE 'commit%'"


@pytest.fixture(scope="module")
def shared(postgres: Postgres) -> Iterator[Product]:
    with Product.running(1, **{URL_VARIABLE: postgres.url("away")}, **SCALED) as product:
        yield product


@pytest.fixture
def product(shared: Product, postgres: Postgres) -> Iterator[Product]:
    yield shared
    if postgres.process is None:
        postgres.start()
    shared.end_all()


def grows(run: ARun, lines: int) -> None:
    """Until the run's outbox is longer by so many lines."""
    there = len(run.outbox())
    run.product.until(lambda: len(run.outbox()) >= there + lines, lambda: run.why("the outbox does not grow"))


def sync(run: ARun) -> httpx.Response:
    """A heartbeat as its supervisor sends it."""
    url = f"{run.product.stack.url}/api/attempts/{run.attempt_id}/sync"
    return httpx.post(url, json={"lines": []}, headers={"Authorization": f"Bearer {run.token()}"}, timeout=20)


def logs(product: Product) -> dict[str, str]:
    return {name: (product.stack.installation.data / f"{name}.log").read_text() for name in ("web", "control")}


def watch(run: ARun, after: int = 0) -> ClientConnection:
    """The socket of the run's page."""
    stack = run.product.stack
    cookie = "; ".join(f"{name}={value}" for name, value in stack.cookies().items())
    address = f"{stack.url.replace('http', 'ws')}/ws/runs/{run.run}/?after={after}"
    return connect(address, origin=stack.url, additional_headers={"Cookie": cookie}, open_timeout=20)  # type: ignore[arg-type]


def last_seen(socket: ClientConnection, enough: Callable[[int], bool]) -> int:
    """Read until the socket has said enough; answers the last line that it told of."""
    last = 0
    while not enough(last):
        last = max(last, json.loads(socket.recv(timeout=30)).get("last", 0))
    return last


def follows(run: ARun, after: int) -> bool:
    """A browser's next try: it sees new lines. False: it was refused, or closed, but not as somebody who has no
    business here and need not come again."""
    try:
        with watch(run, after) as socket:
            return last_seen(socket, lambda last: last > after) > after
    except InvalidStatus as refused:
        return refused.response.status_code < 500 and _never(refused)
    except ConnectionClosed as closed:
        return closed.rcvd is not None and closed.rcvd.code in (4401, 4404) and _never(closed)


def _never(error: Exception) -> bool:
    raise AssertionError("the browser was told not to come again") from error


def cut_commits(product: Product, postgres: Postgres, times: int, cut: Callable[[int], object]) -> None:
    """End backends while they commit what a supervisor has sent."""
    with postgres.connect("away") as connection:
        connection.execute(SLOW_COMMITS)
        for _ in range(times):
            pids: list[int] = []

            def found(pids: list[int] = pids) -> bool:
                pids += [pid for (pid,) in connection.execute(COMMITTING)]
                return bool(pids)

            product.until(found, "nobody commits")
            cut(pids[0])
    product.until(lambda: commits_are_normal(postgres), "PostgreSQL does not recover")


def commits_are_normal(postgres: Postgres) -> bool:
    try:
        with postgres.connect("away") as connection:
            connection.execute(NORMAL_COMMITS)
    except psycopg.OperationalError:
        return False
    return True


def test_a_database_that_is_gone_for_a_while(product: Product, postgres: Postgres) -> None:
    run, pids = product.launch(), product.fleet.pids()
    run.until_step(5)
    token = run.token()
    assert token
    page = f"/runs/{run.run}/"
    with product.stack.client() as client, watch(run) as socket:
        last = last_seen(socket, lambda last: last > 5)
        postgres.stop()
        grows(run, 80)
        answers = [client.get(page), client.get("/runs/"), client.get("/runs/", headers={"Accept": "application/json"})]
        assert [answer.status_code for answer in answers] == [503, 503, 503]
        assert "The database is unavailable" in answers[0].text
        assert client.get("/healthz").status_code == 503
        assert "cannot be reached" in (run.folder / "logs" / "supervisor.log").read_text()
        postgres.start()
        product.until(lambda: client.get(page).status_code == 200, "the page does not heal")
        assert client.get("/healthz").status_code == 200
    product.until(lambda: follows(run, last), "the socket does not come back")
    run.until_step(len(run.outbox()) // 2)
    run.open_gate("trainer")
    invariants.check(run, status="succeeded", reason="completed")
    said = logs(product)
    assert "Traceback" not in "".join(said.values())
    assert 1 <= said["web"].count("can't be reached") <= 2
    assert 1 <= said["control"].count("can't be reached") <= 4
    assert product.fleet.pids() == pids


def test_a_host_is_told_to_come_again(product: Product, postgres: Postgres) -> None:
    run = product.launch()
    run.until_step(1)
    token = run.token()
    url = f"{product.stack.url}/api/attempts/{run.attempt_id}/"
    postgres.stop(signal.SIGQUIT)
    for what in ("sync", "claim", "samples", "reaped", "not_launched", "logs/trainer"):
        answer = httpx.post(url + what, json={}, headers={"Authorization": f"Bearer {token}"}, timeout=20)
        assert (what, answer.status_code, answer.json()["error"]["where"]) == (what, 503, "database")
    postgres.start()
    run.open_gate("trainer")
    invariants.check(run, status="succeeded", reason="completed")


def test_connections_that_are_cut_in_the_middle_of_a_commit(product: Product, postgres: Postgres) -> None:
    run = product.launch()
    run.until_step(5)
    cut_commits(product, postgres, 6, postgres.terminate)
    grows(run, 20)
    run.open_gate("trainer")
    invariants.check(run, status="succeeded", reason="completed")


def test_a_backend_that_is_killed_takes_every_connection_with_it(product: Product, postgres: Postgres) -> None:
    run = product.launch()
    run.until_step(5)
    cut_commits(product, postgres, 1, lambda pid: os.kill(pid, signal.SIGKILL))
    grows(run, 20)
    run.open_gate("trainer")
    invariants.check(run, status="succeeded", reason="completed")


def test_a_file_that_somebody_else_holds_longer_than_anybody_waits() -> None:
    with Product.running(1, **SCALED) as product, product.stack.client() as client:
        run = product.launch()
        run.until_step(5)
        path = product.stack.installation.data / "controlplane.sqlite3"
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            token = run.token()
            assert token
            grows(run, 80)
            answer = sync(run)
            assert (answer.status_code, answer.json()["error"]["where"]) == (503, "database")
            stop = client.post(f"/runs/{run.run}/stop", data={"mode": "save"})
            assert stop.status_code == 503
            assert "Refresh" not in stop.headers
            assert client.get(f"/runs/{run.run}/").status_code == 200
            other.execute("ROLLBACK")
        product.until(lambda: sync(run).status_code == 200, "the host is not answered again")
        run.open_gate("trainer")
        invariants.check(run, status="succeeded", reason="completed")
        said = logs(product)
        assert "Traceback" not in "".join(said.values())
        assert said["web"].count("can't be reached") == 1
