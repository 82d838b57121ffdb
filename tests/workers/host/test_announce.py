"""The host's announcements: inventory, the trainer's schema once, and a control plane that is away."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fake_control import TOKEN, FakeControl
from workers.host import announce
from workers.host.announce import Announcer, TrainerProbe
from workers.host.inventory import Inventory
from workers.host.runsizes import RunSizes
from workers.settings import HostSettings
from workers.supervisor.processes.gpus import GpuReading
from workers.supervisor.reports.control import Control

GPU = GpuReading(0, "GPU-0", "H200", 143_771, 500, 3, 70.5, 31, "580.1")


@pytest.fixture
def control() -> Iterator[FakeControl]:
    made = FakeControl().start()
    yield made
    made.close()


@pytest.fixture
def settings(tmp_path: Path, control: FakeControl) -> HostSettings:
    return HostSettings(
        runs_dir=tmp_path, control_url=control.url, host_name="box", model_roots=(tmp_path / "models",), cpu_slots=2
    )


@pytest.fixture
def client(control: FakeControl) -> Iterator[Control]:
    made = Control(url=control.url, token=TOKEN, timeout_s=5)
    yield made
    made.close()


HOLDS = {"backend": "bubblewrap", "tried": {"bubblewrap": "", "landlock": "the kernel has none"}}
TELLS_SANDBOX = f"print('a warning'); print({json.dumps(HOLDS)!r})"


def an_interpreter(
    folder: Path, *, versions: dict[str, str], schema: dict[str, Any] | None, sandbox: str = TELLS_SANDBOX
) -> str:
    """A program that answers the three questions, and counts how often it was asked for the schema. `sandbox`: what it
    does when it is asked how it holds code."""
    program = folder / "python"
    program.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"if sys.argv[1] == '-c':\n    print({json.dumps(versions)!r})\n"
        f"elif sys.argv[2] == 'workers.sandbox':\n    {sandbox}\n"
        f"else:\n    open({str(folder / 'asked')!r}, 'a').write('x')\n"
        f"    print('a warning of some library')\n    print({json.dumps(schema)!r})\n"
    )
    program.chmod(0o755)
    return str(program)


def announcer(settings: HostSettings, client: Control, gpus: list[GpuReading]) -> Announcer:
    return Announcer(settings, TrainerProbe(settings), Inventory(settings, read_gpus=lambda: gpus), client)


def probe_of(settings: HostSettings, python: str) -> TrainerProbe:
    from dataclasses import replace

    return TrainerProbe(replace(settings, trainer_python=python))


def test_the_inventory_names_what_a_run_can_have(settings: HostSettings, client: Control, tmp_path: Path) -> None:
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    (tmp_path / "models" / "tiny" / "config.json").write_text("{}")
    made = announcer(settings, client, [GPU])
    inventory = made.inventory()
    assert inventory["gpus"][0]["memory_mib"] == 143_771
    assert inventory["cpu_slots"] == 2
    assert inventory["models"] == [str(tmp_path / "models" / "tiny")]
    assert inventory["trainer"] == "checking"
    assert inventory["disk_free_mib"] > 0


def test_the_schema_is_sent_once_and_again_when_it_is_wanted(
    settings: HostSettings, client: Control, control: FakeControl, tmp_path: Path
) -> None:
    probe = probe_of(settings, an_interpreter(tmp_path, versions={"trl": "1.16.0"}, schema={"trl": "1.16.0"}))
    probe.tick(0.0)
    made = Announcer(settings, probe, Inventory(settings, read_gpus=list), client)
    for now in range(3):
        made.tick(float(now))
    # The fake wants it again after the first announcement only.
    assert [bool(said["trainer_schema"]) for said in control.announced] == [True, True, False]
    assert control.announced[0]["inventory"]["trainer"] == "ready"


def test_what_runs_take_is_sent_once_after_each_walk(
    settings: HostSettings, client: Control, control: FakeControl
) -> None:
    sizes = RunSizes(settings.runs_dir)
    made = Announcer(settings, TrainerProbe(settings), Inventory(settings, read_gpus=list), client, sizes)
    for walk in (False, True, False, True):
        if walk:
            sizes.tick(0.0)
        made.tick(0.0)
    assert ["run_sizes" in said for said in control.announced] == [False, True, False, True]


def test_a_schema_is_asked_for_once_per_set_of_versions(settings: HostSettings, tmp_path: Path) -> None:
    python = an_interpreter(tmp_path, versions={"trl": "1.16.0"}, schema={"trl": "1.16.0"})
    probe_of(settings, python).tick(0.0)
    again = probe_of(settings, python)
    again.tick(0.0)
    assert again.schema == {"trl": "1.16.0"}
    assert (tmp_path / "asked").read_text() == "x"


def test_an_interpreter_that_comes_later_is_found(settings: HostSettings, tmp_path: Path) -> None:
    probe = probe_of(settings, str(tmp_path / "python"))
    probe.tick(0.0)
    assert probe.state == "missing"
    an_interpreter(tmp_path, versions={"trl": "1.16.0"}, schema={"trl": "1.16.0"})
    probe.tick(5.0)
    assert probe.state == "ready"


def test_an_interpreter_without_trl_is_no_trainer(settings: HostSettings, tmp_path: Path) -> None:
    probe = probe_of(settings, an_interpreter(tmp_path, versions={"torch": "2.13.0"}, schema={}))
    probe.tick(0.0)
    assert (probe.state, probe.versions) == ("missing", {"torch": "2.13.0"})


def test_a_control_plane_that_is_away_is_asked_again_soon(
    settings: HostSettings, client: Control, control: FakeControl
) -> None:
    made = announcer(settings, client, [])
    control.stop()
    assert made.tick(0.0) <= 2.0
    control.start()
    made.tick(2.0)
    assert len(control.announced) == 1


def test_a_host_that_is_looked_at_announces_itself_more_often(
    settings: HostSettings, client: Control, control: FakeControl
) -> None:
    made = announcer(settings, client, [])
    made._probe.schema = {"trl": "1.16.0"}
    assert made.tick(0.0) == 0.5  # the schema was wanted
    assert made.tick(0.5) == settings.announce_s
    control.host_watched = True
    assert made.tick(10.0) == settings.announce_watched_s


def test_the_control_planes_address_is_left_for_supervisors(settings: HostSettings) -> None:
    announce.write_control_url(settings)
    assert settings.control_url_file.read_text().strip() == settings.control_url


# --- how it holds code -------------------------------------------------------------------------------------------


def sandbox_of(settings: HostSettings, folder: Path, does: str) -> Any:
    probe = probe_of(settings, an_interpreter(folder, versions={"trl": "1"}, schema={"trl": "1"}, sandbox=does))
    probe.tick(0.0)
    return probe.sandbox


def test_what_holds_code_is_announced_once_it_is_known(
    settings: HostSettings, client: Control, control: FakeControl, tmp_path: Path
) -> None:
    probe = probe_of(settings, an_interpreter(tmp_path, versions={"trl": "1"}, schema={"trl": "1"}))
    made = Announcer(settings, probe, Inventory(settings, read_gpus=list), client)
    made.tick(0.0)
    assert "sandbox" not in control.announced[-1]["inventory"]
    probe.tick(0.0)
    made.tick(1.0)
    assert control.announced[-1]["inventory"]["sandbox"] == HOLDS


def test_the_packages_of_others_are_announced_with_their_versions(
    settings: HostSettings, client: Control, tmp_path: Path
) -> None:
    python = an_interpreter(tmp_path, versions={"trl": "1.16.0", "textarena": "0.7.4"}, schema={"trl": "1.16.0"})
    for other, known in ((python, {"textarena": "0.7.4"}), ("/nowhere/python", {})):
        held = replace(settings, environments_python=other, sinks_python="/nowhere/python")
        probe = probe_of(held, python)
        probe.tick(0.0)
        made = Announcer(held, probe, Inventory(held, read_gpus=list), client)
        assert made.inventory()["packages"] == known


def test_a_host_where_nothing_holds_says_why(settings: HostSettings, tmp_path: Path) -> None:
    nothing = {"backend": None, "tried": {"bubblewrap": "not installed", "landlock": "the kernel has none"}}
    assert sandbox_of(settings, tmp_path, f"print({json.dumps(nothing)!r}); sys.exit(1)") == nothing


@pytest.mark.parametrize("does", ["sys.exit(3)", "print('no JSON')", "pass", "print([1])"])
def test_a_self_test_without_an_answer_holds_nothing(settings: HostSettings, tmp_path: Path, does: str) -> None:
    found = sandbox_of(settings, tmp_path, does)
    assert found["backend"] is None
    assert "reported nothing" in str(found["tried"])


def test_it_is_asked_again_in_a_while(settings: HostSettings, tmp_path: Path) -> None:
    counts = f"open({str(tmp_path / 'tested')!r}, 'a').write('x'); {TELLS_SANDBOX}"
    probe = probe_of(settings, an_interpreter(tmp_path, versions={"trl": "1"}, schema={"trl": "1"}, sandbox=counts))
    for now in (0.0, 60.0, 540.0, 600.0, 660.0):
        probe.tick(now)
    assert (tmp_path / "tested").read_text() == "xx"


def test_the_real_self_test_answers_in_this_form(settings: HostSettings) -> None:
    probe = probe_of(settings, sys.executable)
    probe._test_sandbox(0.0)
    assert probe.sandbox is not None
    assert set(probe.sandbox) == {"backend", "tried"}
    assert {"bubblewrap", "landlock"} == set(probe.sandbox["tried"])


def test_torch_is_asked_about_the_gpus_once_for_each_driver_and_again_until_it_answers(
    settings: HostSettings, client: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = announcer(settings, client, [GPU])
    probe, asked = made._probe, []
    answers = iter([None, {"built_for": "13.0", "usable": True}, {"built_for": "13.0", "usable": False}])

    def ask(argv: list[str], *, gpus: bool = False, **_: object) -> dict[str, Any] | None:
        if "torch.cuda" not in argv[-1]:
            return {"torch": "2.13.0", "trl": "1.16.0"}
        asked.append(gpus)
        return next(answers)

    monkeypatch.setattr(probe, "_run_query", ask)
    probe.tick(0.0)
    assert asked == []  # no driver is known yet
    assert "cuda" not in made.inventory()
    for now in range(3):
        probe.tick(float(now))
    assert asked == [True, True]
    assert made.inventory()["cuda"] == {"built_for": "13.0", "usable": True}
    probe.driver = "535.1"
    probe.tick(4.0)
    assert (len(asked), probe.cuda) == (3, {"built_for": "13.0", "usable": False})
    probe.driver = ""
    probe.tick(5.0)
    assert probe.cuda is None


def test_the_inventory_tells_the_size_of_the_shared_memory(settings: HostSettings, client: Control) -> None:
    assert announcer(settings, client, []).inventory()["shm_mib"] > 0
