"""The harness that proves set-ups on GPUs, as far as it can be tested without one."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from django.conf import LazySettings
from django.core import signals
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from django.utils import timezone

from controlplane.catalogue.hardware.models import HardwareProfile, Host, ModelInspection
from controlplane.catalogue.hardware.profiles import launch_values
from controlplane.catalogue.hardware.shipped import by_slug
from controlplane.platform.accounts.models import Role, User
from runs.engine.models import Run
from runs.engine.scheduling import leasing
from runs.engine.spec import spec_of
from tests.gpu import figures, models, proof, prove, ratio, ways
from tests.gpu.episodes import BATCH, MODES
from tests.gpu.figures import Row
from tests.gpu.person import PASSWORD, USER, Person
from tests.gpu.setups import AHEAD, FAST, ONE_AHEAD, PLANS, THREE_WAYS
from tests.gpu.units import Setup, Starts
from tests.runs.launch.new_run.launching_page import SCHEMA, a_config, a_ready_host, a_version
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.overlapping import MODE
from workers.contract.run.spec import AttemptSpec, DataSpec, ModelSpec, Placement, RunSpec

SETUPS = [
    unit
    for plan in ("one-gpu", "two-gpus", "four-gpus", "lora-roads")
    for unit in PLANS[plan]
    if isinstance(unit, Setup)
]
SETUPS += [unit.setup for unit in PLANS["starts"] if isinstance(unit, Starts)]
SETUPS += [
    Setup(name, mode.slug, "1.5b", mode.gpus, "", {**mode.profile, **BATCH}, {"use_lora": mode.lora})
    for name, mode in MODES.items()
]
SETUPS += [
    replace(unit.setup, name=f"{unit.name}, {way.name}", launch=way.launch)
    for unit, way in ((AHEAD, ONE_AHEAD), (THREE_WAYS, FAST))
]
VERSIONS = {"torch": "2.11.0", "trl": "1.16.0", "vllm": "0.22.1", "deepspeed": "0.19.8", "bitsandbytes": "0.50.2"}


def rows(*steps: tuple[float, float, float]) -> list[Row]:
    """(time, step_time, num_tokens) of each."""
    return [Row(t, n, {"step_time": s, "num_tokens": k}) for n, (t, s, k) in enumerate(steps, 1)]


# --- figures --------------------------------------------------------------------------------------------------


def test_the_first_step_pays_for_warming_up_and_is_not_counted() -> None:
    steps = rows((10.0, 9.0, 1000), (12.0, 2.0, 2000), (14.0, 2.0, 3000))
    assert figures.tokens_per_s(steps) == 500
    assert figures.tokens_per_s(steps[:1]) is None


def test_the_ratio_is_of_medians_from_line_to_line_without_each_runs_first() -> None:
    slow = rows((0.0, 1, 1), (9.0, 1, 1), (10.1, 1, 1), (11.2, 1, 1))
    quick = rows((0.0, 1, 1), (5.0, 1, 1), (6.0, 1, 1), (7.0, 1, 1))
    assert figures.step_ratio([slow], [quick]) == pytest.approx(1.1)
    assert figures.step_ratio([], [quick]) is None


def test_ways_are_compared_by_the_settled_steps_of_all_their_runs() -> None:
    runs = {
        "in turns": [
            rows((0, 1, 1), (9, 1, 1), (12, 1, 1), (15, 1, 1)),
            rows((0, 1, 1), (9, 1, 1), (12, 1, 1), (15, 1, 1)),
        ],
        "one step ahead": [rows((0, 1, 1), (9, 1, 1), (11, 1, 1), (13, 1, 1))],
    }
    assert ways.compared(AHEAD, runs) == {"ahead_speedup": 1.5}
    assert ways.compared(AHEAD, {"in turns": runs["in turns"]}) == {"ahead_speedup": None}


def test_a_peak_is_the_most_of_all_samples_and_the_receipt() -> None:
    samples = [Row(0, None, {"gpu/2/memory_mib": 1024.0, "gpu/3/memory_mib": 5120.0}), Row(1, None, {})]
    receipt = {"gpus": [{"gpu": "2", "peak_mib": 2048}, {"gpu": "3", "peak_mib": 10}]}
    assert figures.used_peaks(samples, receipt, (2, 3)) == [2.0, 5.0]
    assert figures.used_peaks([], None, ()) == []


def test_what_vllm_says_it_took_is_counted_once_for_all_its_workers() -> None:
    log = (
        "(Worker_TP0) Model loading took 1.50 GiB memory and 1.2 seconds\n(Worker_TP1) Model loading took 1.50 GiB\n"
        "(Worker_TP0) Available KV cache memory: 30.25 GiB\n"
        "(EngineCore) Graph capturing finished in 3 secs, took 0.25 GiB"
    )
    assert figures.preallocated(log) == 32.0
    assert figures.preallocated("nothing of it") is None


def test_the_parts_of_a_peak_add_up_to_it() -> None:
    given: dict[str, Any] = {"peaks": [50.0, 40.0], "gpus": (0, 1), "trainer_gpus": (0,), "ranks": {0: 45.0}}
    apart = figures.parts(**given, vllm_on={1: 38.0}, inside_torch=False)
    assert apart == [
        {"trainer_torch": 45.0, "contexts_and_rest": 5.0},
        {"vllm_preallocated": 38.0, "contexts_and_rest": 2.0},
    ]
    colocated = figures.parts(**given, vllm_on={0: 30.0}, inside_torch=True)[0]
    assert colocated == {"trainer_torch": 15.0, "vllm_preallocated": 30.0, "contexts_and_rest": 5.0}
    assert figures.peaks_of([*apart, colocated]) == [50.0, 2.0, 20.0]


@dataclass
class Held:
    """What `next_start` looks at of a launch."""

    held: set[str]
    sent: float
    dispatched: float
    ended: float | None


def test_the_next_start_counts_from_the_last_run_that_was_in_the_way() -> None:
    early, late = Held({"gpu:0"}, 0, 1, 50), Held({"gpu:1"}, 0, 1, 90)
    both, alone = Held({"gpu:0", "gpu:1"}, 2, 90.2, None), Held({"gpu:7"}, 2, 95, None)
    launches: Any = [early, late, both, alone]
    assert [proof.next_start(one, launches) for one in launches] == [None, 0.2, None, None]


# --- models ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "millions"), [("0.5b", 494), ("1.5b", 1544), ("3b", 3086), ("7b", 7615)])
def test_the_shapes_have_as_many_parameters_as_the_real_models(name: str, millions: int) -> None:
    assert round(models.parameters(models.SHAPES[name]) / 1e6) == millions


# --- what a person would send ---------------------------------------------------------------------------------


@pytest.fixture
def machine(db: None) -> Host:
    """Four H200s, as a host announces them."""
    host = a_ready_host("testhost", gpus=4)
    schema = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": MODE, "type": "str", "group": "vLLM"}]}
    host.inventory |= {"versions": VERSIONS, "cpu_slots": 8, "port_range": [21000, 21999], "disk_free_mib": 40_000}
    host.trainer_schema = schema
    host.save()
    return host


@pytest.fixture
def person(db: None, settings: LazySettings) -> Iterator[Person]:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    User.objects.create_user(USER, password=PASSWORD, role=Role.OPERATOR)
    made = Person("http://testserver", httpx.WSGITransport(app=get_wsgi_application()))
    ours = (signals.request_started, signals.request_finished)
    for signal in ours:
        signal.disconnect(close_old_connections)  # the connection is the test's, in the middle of its transaction
    made.sign_in()
    yield made
    made.close()
    for signal in ours:
        signal.connect(close_old_connections)


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.name)
def test_the_pages_take_each_set_up_and_four_gpus_have_room_for_it(setup: Setup, machine: Host, person: Person) -> None:
    version, rewards = a_version(512), a_config()
    _told(machine, setup.shape)
    shipped = HardwareProfile.objects.get(name=by_slug(setup.slug).name)
    profile = person.make_profile(shipped.pk, f"proof of {setup.name}", setup.profile)
    choices = {"model": "/models/x", "dataset_version": version.pk, "reward_version": rewards.pk, "profile": profile}
    values = launch_values(HardwareProfile.objects.get(pk=profile))
    run, _, _ = person.launch({**values, **setup.launch, **choices, "max_steps": 100_000, "save_steps": 100_000})

    spec = spec_of(Run.objects.get(pk=run))
    placed = leasing.allocate(leasing.need_of(spec.hardware), machine, {})
    assert isinstance(placed, Placement)
    assert len({*placed.gpus, *placed.server_gpus}) == setup.gpus
    for name, value in setup.profile.items():
        if name in setup.launch:
            assert str(spec.grpo[name]) == setup.launch[name]
        elif hasattr(spec.hardware, name):
            assert getattr(spec.hardware, name) == value
        elif name in spec.grpo:
            assert spec.grpo[name] == value


def _told(host: Host, shape: str) -> None:
    """The host has looked at the model."""
    its = models.SHAPES[shape]
    answer = {"ok": True, "parameters": models.parameters(its), "dtype": "BF16", "context_length": models.CONTEXT}
    answer |= {"heads": its.num_attention_heads, "kv_heads": its.num_key_value_heads, "layers": its.num_hidden_layers}
    answer |= {"hidden": its.hidden_size, "chat_template": True, "bytes": 2 * models.parameters(its)}
    ModelInspection.objects.create(host=host, model="/models/x", answer=answer, answered_at=timezone.now())


def test_the_harness_says_how_it_is_used() -> None:
    with redirect_stdout(io.StringIO()) as said, pytest.raises(SystemExit):
        prove.main(["--help"])
    assert "--deadline-s" in said.getvalue()


def test_the_bare_script_gets_the_gpus_and_ports_that_the_run_beside_it_lacks() -> None:
    placement = Placement("h", gpus=(0, 3), server_gpus=(1,), ports=(21000,), group_port=21001)
    spec = AttemptSpec("r-1", 1, 1, run_spec(), placement)
    moved = ratio.elsewhere(spec, [0, 1, 2, 3, 4, 5]).placement
    assert (moved.gpus, moved.server_gpus) == ((2, 4), (5,))
    assert not {*moved.ports, moved.group_port} & {21000, 21001}


def run_spec() -> RunSpec:
    return RunSpec("r", "r", "train", ModelSpec("m"), DataSpec("d", 1, "", 1), (), HardwareSpec("p"), {})
