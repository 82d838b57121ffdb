from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from controlplane.setup.serving.processes import Fleet, NotReady, ServedProgram
from tests.waiting import wait_until

pytestmark = pytest.mark.processes


def python(name: str, code: str, folder: Path, **fields: object) -> ServedProgram:
    return ServedProgram(name=name, argv=[sys.executable, "-c", code], env=None, log=folder / f"{name}.log", **fields)  # type: ignore[arg-type]


def test_a_child_that_dies_is_reported_and_started_again(tmp_path: Path) -> None:
    said: list[str] = []
    now = [0.0]
    fleet = Fleet(report=said.append, clock=lambda: now[0])
    fleet.start(python("one", "raise SystemExit(7)", tmp_path))
    wait_until(lambda: fleet.tick() or said)
    assert "one exited with code 7" in said[0]
    assert "in 1 s" in said[0]
    now[0] = 1.5
    fleet.tick()
    assert said[1] == "one restarted"
    wait_until(lambda: fleet.tick() or len(said) == 3)
    assert "in 2 s" in said[2]
    fleet.stop()


def test_a_child_that_dies_again_and_again_shows_why(tmp_path: Path) -> None:
    said: list[str] = []
    fleet = Fleet(report=said.append, first_backoff_s=0)
    fleet.start(python("one", "raise SystemExit('the database is of a newer version')", tmp_path))
    wait_until(lambda: fleet.tick() or any("3 times in a row" in text for text in said))
    assert "the database is of a newer version" in said[-1]
    fleet.stop()


def test_a_child_that_ends_before_it_serves_shows_the_end_of_its_log(tmp_path: Path) -> None:
    fleet = Fleet(report=print)
    fleet.start(python("one", "raise SystemExit('no port for me')", tmp_path, ready=lambda: False))
    with pytest.raises(NotReady, match=r"(?s)one exited with code 1.*no port for me"):
        fleet.wait_ready(["one"])


def test_stopping_kills_a_child_that_ignores_sigterm_and_what_it_left(tmp_path: Path) -> None:
    code = (
        "import os, signal, subprocess, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(1000)"
    )
    log = tmp_path / "one.log"
    fleet = Fleet(report=print)
    fleet.start(python("one", code, tmp_path, ready=lambda: log.read_text().endswith("\n"), grace_s=0.2))
    fleet.wait_ready(["one"])
    pids = [int(log.read_text()), *fleet.pids().values()]
    fleet.stop()
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def test_all_are_stopped_at_once_and_then_what_they_need(tmp_path: Path) -> None:
    """Each of two ends only when it sees the other one end; what they need writes down that both have."""
    code = (
        "import signal, sys, time; from pathlib import Path\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "def end(*_):\n"
        "    (folder / 'NAME.ending').touch()\n"
        "    while not all((folder / f'{other}.ending').exists() for other in OTHERS): time.sleep(0.01)\n"
        "    (folder / 'NAME.saw').write_text(' '.join(sorted(p.stem for p in folder.glob('*.saw')))); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); print('ready', flush=True); time.sleep(1000)"
    )
    others = {"base": ["one", "two"], "one": ["two"], "two": ["one"]}
    fleet = Fleet(report=print)
    for name, seen in others.items():
        log, told = tmp_path / f"{name}.log", code.replace("NAME", name).replace("OTHERS", str(seen))
        ready = lambda log=log: "ready" in log.read_text()  # noqa: E731
        fleet.start(python(name, told, tmp_path, ready=ready, grace_s=60, needed_to_the_end=name == "base"))
    fleet.wait_ready(others)
    fleet.stop()
    assert (tmp_path / "base.saw").read_text() == "one two"


def test_stopping_kills_what_a_child_left_that_has_just_died(tmp_path: Path) -> None:
    code = "import subprocess, time; print(subprocess.Popen(['sleep', '1000']).pid, flush=True); time.sleep(1000)"
    log = tmp_path / "one.log"
    fleet = Fleet(report=print)
    fleet.start(python("one", code, tmp_path, ready=lambda: log.read_text().endswith("\n")))
    fleet.wait_ready(["one"])
    left = int(log.read_text())
    child = psutil.Process(fleet.pids()["one"])
    child.kill()
    wait_until(lambda: child.status() == psutil.STATUS_ZOMBIE)
    fleet.stop()
    wait_until(lambda: not psutil.pid_exists(left))


def test_children_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from controlplane.setup.serving.processes import Fleet, ServedProgram\n"
        f"fleet = Fleet(report=print); log = Path({str(tmp_path)!r}) / 'child.log'\n"
        "fleet.start(ServedProgram(name='child', argv=['sleep', '1000'], env=None, log=log))\n"
        "print(fleet.pids()['child'], flush=True); time.sleep(1000)"
    )
    log = tmp_path / "parent.log"
    fleet = Fleet(report=print)
    fleet.start(python("parent", code, tmp_path, ready=lambda: log.read_text().endswith("\n")))
    fleet.wait_ready(["parent"])
    child = int(log.read_text())
    psutil.Process(fleet.pids()["parent"]).kill()
    wait_until(lambda: not psutil.pid_exists(child))
    fleet.stop()
