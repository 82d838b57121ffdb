"""The sockets of a live run, as the threat model in workers/threats.md lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.listening import tcp_addresses
from tests.workers.supervisor.attempts import attempt
from tests.workers.supervisor.servers import server_attempt
from workers.contract.wire.names import StopMode

pytestmark = pytest.mark.processes


def test_a_supervisor_and_a_trainer_listen_nowhere(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever") as made:
        made.launch()
        made.wait_for_step(2)
        addresses = tcp_addresses(made.supervisor().pid)
        made.ask_to_stop(StopMode.NOW)
        made.wait_for_end()
        assert addresses == set()


def test_the_servers_of_a_run_listen_on_loopback(tmp_path: Path) -> None:
    with server_attempt(tmp_path, trainer="forever") as made:
        made.launch()
        made.wait_for_step(2)
        addresses = tcp_addresses(made.supervisor().pid)
        made.ask_to_stop(StopMode.NOW)
        made.wait_for_end()
        assert addresses == {"127.0.0.1"}
