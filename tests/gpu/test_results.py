"""What the proof on GPUs has found: how sittings add up, the page made of it, and what the committed file promises."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.gpu import prove, results
from tests.gpu.setups import PLANS
from tests.gpu.units import Setup
from workers.contract.stack.packages import GPU, GPU_TORCH_2_11, SETS

COMMITTED = json.loads(results.COMMITTED.read_text())
PROVED = [one for one in COMMITTED if one["steps"] and "first_steps" not in one]
FIGURE = {"turns-colocate": "step_ratio", "turns-server": "step_ratio", "batch-gain": "batch_gain"}
FIGURE |= {"lora-over-base": "lora_over_base_256", "ahead-1-plus-1": "ahead_speedup"}
FIGURE |= {"three-ways-1-plus-1": "fast_over_today", "start-1-plus-1": "first_step_s_warm_server"}
FIGURE |= {"start-colocate": "first_step_s_warm"}
PLANNED = {
    unit.name for plan, units in PLANS.items() if plan != "cpu-rehearsal" for unit in units if isinstance(unit, Setup)
}


def test_each_set_of_versions_that_preflight_calls_tested_was_run_that_day_on_that_card() -> None:
    tested = [versions for versions in SETS.values() if versions.proved]
    assert {versions.torch for versions in tested} == {GPU.torch, GPU_TORCH_2_11.torch}
    for versions in tested:
        day, card = versions.proved.split(" on ")
        ran = [
            entry["date"]
            for entry in PROVED
            if f"torch {versions.torch}," in entry["versions"]
            and f"vllm {versions.vllm}," in entry["versions"]
            and card in entry["machine"]
        ]
        assert max(ran) == day


def test_sittings_add_up_by_name_and_a_failure_leaves_what_was_proved() -> None:
    first: list[results.Entry] = [{"name": "a", "steps": 5, "step_ratio": 1.0}, {"name": "b", "failed": "no memory"}]
    again = results.merged(first, [{"name": "a", "steps": 6}, {"name": "b", "steps": 4}, {"name": "c"}])
    assert again == [{"name": "a", "steps": 6, "step_ratio": 1.0}, {"name": "b", "steps": 4}, {"name": "c"}]
    assert results.merged(again, [{"name": "a", "failed": "why"}])[0]["steps"] == 6


def test_the_page_has_a_row_and_a_section_for_each_set_up() -> None:
    kill = {"when": "with 8 requests running", "free": True, "free_s": 1.234, "gone_s": 0.2, "free_wall_s": 1.3}
    entry = {
        "name": "server", "machine": "2 × H200", "versions": "torch 2", "gpus": 2, "steps": 5, "tokens_per_s": 12345.6,
        "peak_gib": [50.0, 126.54], "gpu_ids": [0, 1], "peak_parts_gib": [{"trainer_torch": 48.0}, {}],
        "first_step_s": 61.23, "kill_free_s": [1.234, 1.5], "kills": [kill], "step_ratio": 1.0031,
        "step_s_product": 0.7, "step_s_bare": 0.698, "step_ratio_how": "in turns", "command": "x",
    }  # fmt: skip
    page = results.render([entry, {"name": "broken", "failed": "out of memory"}])
    assert "| [server](#server) | 2 | 5 | 12,346 | 50.0, 126.5 | – | 61.2 | 1.23, 1.50 | – | 1.0031 |" in page
    assert "receipt free" in page
    assert "**The last try failed:** out of memory" in page
    assert "2 × H200; torch 2" in page


def test_a_figure_of_its_own_has_a_section_and_no_row() -> None:
    ratio = {"step_ratio": 1.004, "step_ratio_interval": [0.998, 1.011], "step_ratio_pairs": [1.0, 1.008]}
    turns = {
        "name": "turns-colocate",
        "step_s_product": 0.7,
        "step_s_bare": 0.697,
        "step_ratio_how": "2 pairs",
        **ratio,
    }
    gain = {"name": "batch-gain", "batch_gain": 2.1, "batch_gain_step_s": [4.7, 2.24], "batch_gain_values": {"a": "32"}}
    plain = {"base": 25_000.0, "adapter": 23_000.0, "over_base": 0.92, "swap_s": 0.2, "start_s": 31.0}
    page = results.render([turns, gain, {"name": "lora-over-base", "lora_settings": {"r32": plain}}])
    assert "1.0040, between 0.9980 and 1.0110; by pair 1.000, 1.008" in page
    assert "2.10 times the steps per second: 2.24 s instead of 4.70 (a 32)" in page
    assert "| r32 | 25,000 | 23,000 | 0.920 | 0.20 | 31 |" in page
    assert "| [turns-colocate]" not in page


def test_ways_are_told_with_what_they_gave() -> None:
    way = {
        "step_s": 1.5,
        "step_s_runs": [1.4, 1.6],
        "tokens_per_s": [9000.4, None],
        "generation_s": 0.1,
        "ahead_s": 1.2,
    }
    page = results.render([{"name": "ahead", "says": "x", "ways": {"one step ahead": way}, "ahead_speedup": 1.62}])
    assert (
        "- one step ahead: 1.500 s per step, 9,000, – tokens/s in 2 runs, generation 0.10 s, vLLM ahead 1.20 s\n"
        "- Steps per second, one step ahead over in turns: **1.62**"
    ) in page


def test_a_sitting_takes_nothing_back_that_another_has_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "COMMITTED", tmp_path / "committed.json")
    monkeypatch.setattr(results, "PAGE", tmp_path / "page.md")
    results.write(tmp_path / "committed.json", [{"name": "a", "failed": "no time"}, {"name": "b", "steps": 2}])
    for name in ("a", "b"):
        prove.Saver(tmp_path / f"{name}.json")({"name": name, "steps": 5})
    for name in ("a", "b"):
        assert prove.main(["--render", str(tmp_path / f"{name}.json")]) == 0
    found = results.read(tmp_path / "committed.json")
    assert [(one["name"], one["steps"], "failed" in one) for one in found] == [("a", 5, False), ("b", 5, False)]


def test_what_a_sitting_did_not_measure_is_written_as_such_and_takes_no_earlier_value(tmp_path: Path) -> None:
    save = prove.Saver(tmp_path / "found.json")
    save({"name": "a", "step_ratio": 1.0, "kill_free_s": [0.4]})
    save({"name": "b", "steps": 5})
    later = results.read(tmp_path / "found.json")
    assert all(set(results.PROMISED) <= set(one) for one in later)
    assert (later[1]["step_ratio"], later[1]["kill_free_s"]) == (None, [])
    both = results.merged(later, [{**results.PROMISED, "name": "a", "steps": 6}])
    assert (both[0]["step_ratio"], both[0]["kill_free_s"], both[0]["steps"]) == (1.0, [0.4], 6)


def test_a_rehearsal_without_a_gpu_gets_onto_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "COMMITTED", tmp_path / "committed.json")
    monkeypatch.setattr(results, "PAGE", tmp_path / "page.md")
    results.write(tmp_path / "found.json", [{"name": "cpu-transformers", "steps": 3}, {"name": "colocate-1gpu"}])
    assert prove.main(["--render", str(tmp_path / "found.json")]) == 0
    assert [entry["name"] for entry in results.read(tmp_path / "committed.json")] == ["colocate-1gpu"]
    assert "cpu-transformers" not in (tmp_path / "page.md").read_text()


# --- the committed file ---------------------------------------------------------------------------------------


def test_every_object_has_every_promised_key_and_steps_or_why_it_failed() -> None:
    assert {one["name"] for one in COMMITTED} <= {*PLANNED, *results.ALONE}
    assert set(FIGURE) == set(results.ALONE)
    assert all(set(results.PROMISED) <= set(one) for one in COMMITTED)
    assert all(one["steps"] or one.get(FIGURE.get(one["name"], "")) or one["failed"] for one in COMMITTED)


def test_each_promised_value_of_what_was_proved_has_its_type(subtests: pytest.Subtests) -> None:
    for entry in PROVED:
        with subtests.test(entry["name"]):
            assert entry["gpus"] in range(1, 9)
            assert isinstance(entry["steps"], int)
            assert _numbers([entry["tokens_per_s"], entry["first_step_s"]])
            assert _numbers(entry["peak_gib"])
            assert all(_numbers(list(parts.values())) for parts in entry["peak_parts_gib"])
            assert len(entry["peak_gib"]) == len(entry["peak_parts_gib"]) == entry["gpus"]
            assert _numbers(entry["kill_free_s"])
            assert entry["step_ratio"] is None or _numbers([entry["step_ratio"]])
            assert date.fromisoformat(entry["date"])
            assert entry["command"].startswith("python -m tests.gpu.prove ")


def _numbers(values: list[Any]) -> bool:
    return bool(values) and all(type(value) in (int, float) and value >= 0 for value in values)


def test_the_committed_page_is_made_of_the_committed_file() -> None:
    assert results.PAGE.read_text() == results.render(COMMITTED), "python -m tests.gpu.prove --render"


@pytest.mark.parametrize(
    ("begins", "names"),
    [
        ("The step ratio, except for", {one["name"] for one in PROVED if one["step_ratio"] is not None}),
        (
            "The next start after a kill of",
            {one["name"] for one in PROVED if not one["next_start_s"]},
        ),
        ("Planned but not run", PLANNED - {one["name"] for one in PROVED}),
    ],
)
def test_the_readme_names_what_was_not_measured(begins: str, names: set[str]) -> None:
    """Change the bullet, or take it out, when a sitting has filled the gap."""
    bullets = re.split(r"\n(?=- |\n)", (ROOT / "tests/gpu/README.md").read_text())
    told = [set(re.findall(r"`([^`]+)`", bullet)) for bullet in bullets if bullet.startswith(f"- {begins}")]
    assert told == ([names] if names else [])
