"""`bench peers`: its table and verdicts, how it asks the tools' environment, and the measurements on a tool of ours."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core.management import call_command

from tests.benchmarks import _peer_table as table
from tests.benchmarks import _peer_tools as tools
from tests.benchmarks import _peer_venv, peers

LOST, SPIKES, STALL = (next(line for line in table.LINES if line.key == key) for key in (
    "killed_lost", "spikes_kept_of_20", "dead_server_s"))  # fmt: skip
OURS = {"killed_lost": 0, "killed_logged": 390, "read_ms": 6.0, "spikes_kept_of_20": 20, "dead_server_s": 0.0002}
GONE = {"returned": True, "seconds": 0.1, "raises": True}
OTHER = {"killed_lost": 7, "killed_logged": 391, "read_ms": 4.0, "spikes_kept_of_20": 20, "dead_server_s": 0.0}


class Memory:
    """A tool that keeps every value in a list and gives all of them out."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def writer(self) -> tools.Log:
        return lambda step, values: self.values.append(values[tools.METRIC])

    def load(self, values: Sequence[float]) -> None:
        self.values = list(values)

    @contextmanager
    def serving(self) -> Iterator[str]:
        yield "nowhere"

    def read(self, address: str, *, chart: bool) -> list[float]:
        return self.values


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program of the tools' environment, which puts its own folder on the path."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    return importlib.import_module("tests.benchmarks._peer")


# --- the table ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "own", "other", "word"),
    [
        (LOST, 0, 3, "ahead"),
        (LOST, 0, 0, "level"),
        (LOST, 3, 0, "behind"),
        (SPIKES, 20, 11, "ahead"),
        (SPIKES, 19, 20, "behind"),
        (STALL, 0.0003, 0.0, "level"),
        (STALL, 0.5, 0.0, "behind"),
        (STALL, 0.0003, 30.0, "ahead"),
    ],
)
def test_a_verdict_says_what_ours_is_beside_the_other(line: table.Line, own: float, other: float, word: str) -> None:
    assert table.verdict(line, own, other) == word


def test_every_line_on_which_ours_is_behind_is_named_with_the_tool() -> None:
    assert table.behind({"ours": OURS, "swift": OTHER, "slow": OTHER | {"read_ms": 90.0}}) == ["read_ms: swift"]


def test_nothing_is_said_of_what_was_not_measured() -> None:
    assert table.behind({"swift": OTHER}) == []
    assert table.verdicts({"ours": {}, "swift": OTHER})["read_ms"] == {}


def test_the_text_has_a_column_for_each_tool_and_its_verdicts() -> None:
    text = table.as_text({"ours": OURS, "swift": OTHER | {"read_ms": 1234.5}}).splitlines()
    assert text[0].split() == ["ours", "swift"]
    read = next(row for row in text if row.startswith("read of a chart"))
    assert re.split(r"\s{2,}", read)[1:] == ["6", "1234 (ahead)"]
    assert next(row for row in text if "steps logged" in row).split()[-2:] == ["390", "391"]
    assert len({row.find("swift") for row in text if "swift" in row}) == 1


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (0.01234, "0.0123"), (12345.6, "12346"), (7, "7")])
def test_numbers_of_the_table_are_short(value: object, text: str) -> None:
    assert table.cell(value) == text


# --- asking the others ----------------------------------------------------------------------------------------


def test_the_last_object_that_a_measurement_prints_is_its_answer() -> None:
    code = "print('a tool says hello'); print('{\"p50\": 1}'); print('{\"p50\": 2}'); print('bye')"
    assert peers._ask([sys.executable, "-c", code]) == {"p50": 2}


def test_a_measurement_that_answers_nothing_shows_what_it_said() -> None:
    with pytest.raises(RuntimeError, match="no such module"):
        peers._ask([sys.executable, "-c", "raise SystemExit('no such module')"])


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"returned": False, "seconds": 30.0, "raises": False}, "stalls for more than 30 s"),
        ({"returned": True, "seconds": 1.5, "raises": True}, "raises after 2 s"),
        ({"returned": True, "seconds": 0.1, "raises": False}, "returns after 0 s"),
    ],
)
def test_what_a_dead_server_does_is_said_of_calls_that_wait_apart(found: dict[str, Any], words: str) -> None:
    told = peers._stall_of({"seconds": 0.02, "raises": False, "waiting": found})
    assert told == {"dead_server_s": 0.02, "dead_server": "goes on", "dead_server_waiting": words}


def test_a_tool_of_files_and_one_with_a_server_have_the_same_lines() -> None:
    assert set(peers._stall(0.0, "needs none")) == set(peers._stall_of({"seconds": 1, "raises": True, "waiting": GONE}))


def test_a_tool_is_asked_for_every_line_and_what_it_lost_is_what_it_logged_and_does_not_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers: dict[str, Any] = {
        "calls": {"p50": 10.04, "p99": 20.0, "max": 9000.0}, "killed": {"logged": 390}, "stored": {"stored": 383},
        "visible": {"p50": 5.0, "max": 9.0}, "read": {"ms": 7.0, "points": 320, "spikes": 12},
    }  # fmt: skip
    asked: list[list[str]] = []
    monkeypatch.setattr(peers, "_ask", lambda argv: asked.append(argv[2:]) or answers[argv[3]])
    options = argparse.Namespace(calls=30, points=4, steps=1000)
    found = peers._peer(Path("python"), "trackio", tmp_path, options)
    assert (found["killed_lost"], found["log_call_p50_us"], found["spikes_kept_of_20"]) == (7, 10.0, 12)
    assert found["dead_server_s"] == 0.009  # it has no server, and its longest call is what can be said
    assert set(found) == {line.key for line in table.LINES}
    numbers = {task: (place, number) for _, task, place, number in asked}
    assert numbers["stored"][0] == numbers["killed"][0]  # what was killed is what is looked at
    assert {task: int(number) for task, (_, number) in numbers.items() if task in ("calls", "visible", "read")} == {
        "calls": 30, "visible": 4, "read": 1000}  # fmt: skip


def test_only_some_tools_can_be_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(peers._peer_venv, "environment", lambda: pytest.fail("no environment is needed"))
    monkeypatch.setattr(peers, "_ours", lambda folder, options: OURS)
    assert peers.main(["--only", "ours"]) == {"ours": OURS, "about": {"behind": []}}
    assert "steps lost by a SIGKILL" in capsys.readouterr().err


def test_beside_the_tools_there_is_one_object_about_the_measurement() -> None:
    said = StringIO()
    call_command("bench", "peers", "--json", "--only=none", stdout=said)
    figures = json.loads(said.getvalue())
    assert set(figures) == {"about"}
    assert set(figures["about"]) == {"behind", "benchmark", "load_before", "load_after", "cores"}


# --- the environment ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uv", [None, "/usr/bin/uv"])
def test_the_environment_has_the_pinned_versions_and_is_gone_afterwards(
    monkeypatch: pytest.MonkeyPatch, uv: str | None
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(_peer_venv, "_run", ran.append)
    monkeypatch.setattr(_peer_venv.shutil, "which", lambda name: uv)
    with _peer_venv.environment() as python:
        folder = python.parents[2]
        assert folder.is_dir()
    assert not folder.exists()
    assert ran[1][-2:] == ["-r", str(_peer_venv.REQUIREMENTS)]
    assert str(python) in ran[1]


def test_an_environment_that_cannot_be_made_says_why() -> None:
    with pytest.raises(RuntimeError, match="no such index"):
        _peer_venv._run([sys.executable, "-c", "raise SystemExit('no such index')"])


def test_every_tool_is_pinned() -> None:
    lines = [line for line in _peer_venv.REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9.-]+==[0-9][0-9a-z.]*", line) for line in lines)
    assert set(peers.PEERS) <= {line.partition("==")[0] for line in lines}
    assert {"ours", *peers.PEERS} == set(tools.TOOLS)


# --- the measurements -----------------------------------------------------------------------------------------


def test_what_a_killed_writer_of_ours_has_logged_is_in_its_file(tmp_path: Path) -> None:
    program = [sys.executable, str(peers.PEER), "ours"]
    short = "import sys; sys.argv = sys.argv[1:]; import _peer; _peer.KILLED_AFTER_S = 0.3; "
    run = "_peer.killed(_peer.TOOLS['ours'](_peer.Path(sys.argv[1])), 0)"
    code = f"import sys; sys.path.insert(0, {str(peers.PEER.parent)!r}); {short}{run}"
    logged = peers._ask([sys.executable, "-c", code, "-", str(tmp_path)])["logged"]
    assert logged > 0
    assert peers._ask([*program, "stored", str(tmp_path)]) == {"stored": logged}


def test_a_line_that_a_kill_cut_off_does_not_count_as_stored(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"step"')
    assert tools.Ours(tmp_path).stored() == 2


def test_log_calls_of_ours_are_timed(tmp_path: Path) -> None:
    found = peers._ask([sys.executable, str(peers.PEER), "ours", "calls", str(tmp_path), "25"])
    assert found["calls"] == 25
    assert 0 < found["p50"] <= found["p99"] <= found["max"]
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 25


class Mortal(Memory):
    """A tool whose log calls notice that its server is gone, and whose waiting calls never come back."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = False
        self.refused = 0

    def writer(self) -> tools.Log:
        assert self.alive
        return lambda step, values: None if self.alive else self.refuse()

    def refuse(self) -> None:
        self.refused += 1
        raise ConnectionError

    @contextmanager
    def serving(self) -> Iterator[str]:
        self.alive = True
        yield "nowhere"
        self.alive = False

    def log_and_wait(self, values: dict[str, float]) -> None:
        threading.Event().wait()


def test_log_calls_after_the_servers_death_are_timed_and_one_that_waits_apart(
    peer: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "DEAD_LIMIT_S", 0.05)
    tool = Mortal()
    found = peer.dead(tool, 7)
    assert (tool.refused, found["raises"], found["waiting"]["returned"]) == (7, True, False)
    assert 0 < found["seconds"] < peer.BUDGET_S


def test_of_a_tool_that_gives_out_every_point_every_spike_is_counted(peer: ModuleType) -> None:
    found = peer.read(Memory(), 500)
    assert (found["points"], found["spikes"]) == (500, peer.SPIKES)


def test_of_a_tool_that_gives_out_a_part_only_spikes_in_it_are_counted(peer: ModuleType) -> None:
    class Tenth(Memory):
        def read(self, address: str, *, chart: bool) -> list[float]:
            return self.values[::10]

    tool = Tenth()
    found = peer.read(tool, 500)
    assert found["points"] == 50
    assert found["spikes"] == tool.values[::10].count(peer.SPIKE) < peer.SPIKES


def test_the_first_point_is_not_timed_and_a_slow_server_is_waited_for(peer: ModuleType) -> None:
    class Late(Memory):
        asked = 0

        def read(self, address: str, *, chart: bool) -> list[float]:
            self.asked += 1
            return self.values if self.asked % 3 == 0 else []

    class AtOnce:
        def random(self) -> float:
            return 0.0

    tool, took = Late(), []  # type: tuple[Late, list[float]]
    found = peer._visible(tool, tool.writer(), "", 4, AtOnce(), took)
    assert (len(took), tool.asked) == (3, 12)
    assert 0 < found["p50"] <= found["max"]


def test_a_server_is_waited_for_and_ended(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("here")
    port = tools.free_port()
    argv = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(tmp_path)]
    with tools.serving(argv, f"http://127.0.0.1:{port}") as address:
        assert tools.get(address, {}) == b"here"
    with pytest.raises(OSError, match="refused"):
        tools.get(address, {})


def test_a_server_that_ends_is_said_to_serve_nothing() -> None:
    argv = [sys.executable, "-c", "pass"]
    with (
        pytest.raises(RuntimeError, match="serves nothing"),
        tools.serving(argv, f"http://127.0.0.1:{tools.free_port()}"),
    ):
        pass
