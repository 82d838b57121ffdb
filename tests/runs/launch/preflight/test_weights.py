"""How a LoRA reaches the servers: the way that was faster when measured, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from runs.launch.preflight.checks.lora import check_weights
from runs.launch.preflight.draft import Draft, OtherProfile
from tests.runs.launch.preflight.test_memory import LORA, SERVER, drafted
from workers.contract.run.hardware import HardwareSpec, ServerSpec, WeightSync
from workers.contract.stack import adapters
from workers.contract.stack.adapters import Speed

CARD = "NVIDIA H100 80GB HBM3"
SWAPPED = replace(SERVER, profile="swapped", server=ServerSpec(max_model_len=1024, weight_sync=WeightSync.LORA))
MERGED = replace(SWAPPED, profile="merged", server=ServerSpec(max_model_len=1024))
MEASURED = Speed(CARD, "0.22.1", 7_600_000_000, 16, 256, 24_000.0, 18_000.0, None, 0.2, 1.0)


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(adapters, "SPEED", tmp_path / "speed.json")
    monkeypatch.setattr(adapters, "KERNELS", tmp_path / "kernels")
    told(tmp_path, MEASURED)
    yield tmp_path
    adapters.speeds.cache_clear()


def told(folder: Path, speed: Speed) -> None:
    (folder / "speed.json").write_text(json.dumps([asdict(speed)]))
    adapters.speeds.cache_clear()


def a_draft(spec: HardwareSpec, completions: int) -> Draft:
    sizes = {"per_device_train_batch_size": completions, "num_generations": 8, "max_completion_length": 256}
    profiles = tuple(OtherProfile(one.profile, one) for one in (SWAPPED, MERGED))
    host = {"inventory": {"gpus": [{"index": 0, "name": CARD}]}}
    return drafted("7b", spec, 80, lora=LORA, grpo=sizes, host=host, profiles=profiles)


@pytest.mark.parametrize(("completions", "faster"), [(256, "merged"), (16, "swapped")])
def test_the_faster_way_is_offered_and_the_run_that_has_it_says_why(
    measured: Path, completions: int, faster: str
) -> None:
    for spec in (SWAPPED, MERGED):
        [found] = check_weights(a_draft(spec, completions))
        if spec.profile == faster:
            assert "This run" in found.cause
            assert not found.fixes
        else:
            assert found.fixes[0].values["profile"] == faster
            assert found.fixes[0].values["use_lora"] == "on"


def test_what_was_not_measured_decides_nothing(measured: Path) -> None:
    told(measured, replace(MEASURED, push_s=None))
    assert not list(check_weights(a_draft(SWAPPED, 256)))
    [found] = check_weights(a_draft(MERGED, 256))
    assert "In a measurement on this GPU" not in found.cause


def test_tuned_kernels_count_where_the_card_has_them(measured: Path) -> None:
    told(measured, replace(MEASURED, tuned_tokens_per_s=23_900.0))
    assert next(check_weights(a_draft(SWAPPED, 256))).fixes
    folder = measured / "kernels" / "0.22.1"
    folder.mkdir(parents=True)
    (folder / f"{adapters.file_name(CARD)}_SHRINK.json").write_text("{}")
    assert not next(check_weights(a_draft(SWAPPED, 256))).fixes


def test_the_committed_measurements_can_be_read() -> None:
    assert all(isinstance(one, Speed) for one in adapters.speeds())
