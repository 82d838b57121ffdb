"""The card of a saved model: true, complete, and safe from the names that people give."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from runs.engine import checkpoints
from runs.engine.jobs import starting as jobs
from runs.engine.models import Attempt, Run
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from runs.insight.evaluations import starting
from runs.insight.evaluations.starting import EvaluationSetup
from runs.intake.host_api import uploads
from runs.intake.host_api.ingest import accept
from runs.pages.model_pages import card
from tests.runs.builders import FREE, a_host, a_run, a_user, an_attempt, event
from workers.contract.run.jobs import MERGE
from workers.contract.run.spec import LoraSpec, ModelSpec

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]
HUB = ModelSpec("Qwen/Qwen2.5-0.5B-Instruct", revision="abc123")
HOSTILE = 'x"\n---\nlicense: mit\n# big <img src=y> [a](https://evil.example) | `code` \u202edesrever'


def trained(name: str = "sums", step: int = 4, **columns: Any) -> Run:
    """With one checkpoint."""
    attempt = an_attempt(run=a_run(name, **{"lora": LoraSpec(r=4), "grpo": {"max_steps": 20, "beta": 0.04}, **columns}))
    host = a_host(f"box-{attempt.run_id}")
    host.inventory |= {"runs_dir": "/data/runs"}
    host.save()
    Attempt.objects.filter(pk=attempt.pk).update(host=host)
    attempt.refresh_from_db()
    wrote = {"trl": "1.16.0", "transformers": "5.17.0", "torch": "2.13.0"}
    accept(attempt, [event(1, "checkpoint", step=step, path=f"checkpoints/checkpoint-{step}", bytes=9, versions=wrote)])
    Run.objects.filter(pk=attempt.run_id).update(max_steps=20)
    return Run.objects.get(pk=attempt.run_id)


def card_of(run: Run) -> str:
    [checkpoint] = checkpoints.of_run(run)
    return card.text(checkpoint)


def head_of(text: str) -> dict[str, Any]:
    _, head, _ = text.split("---\n", 2)
    found: dict[str, Any] = yaml.safe_load(head)
    return found


def evaluated(run: Run, reward: float, folder: str) -> None:
    [job] = [each for each in run.jobs.all() if each.spec["start_from"] == folder]
    one = {"text": "a", "tokens": 3, "rewards": {"format": reward}, "reward": reward}
    rows = [{"step": 0, "row": row, "prompt": "p", "mode": "eval", "completions": [one, one]} for row in range(4)]
    uploads.samples(job.attempts.get(), 1, rows)
    attempt = an_attempt(RunStatus.RUNNING, run=job)
    move(attempt, RunStatus.SUCCEEDED, reason="completed", actor="test", facts={"receipt": FREE})


def test_an_adapter_of_a_model_of_the_hub_names_it_as_the_hub_reads_it() -> None:
    text = card_of(trained(model=HUB))
    assert head_of(text) == {
        "base_model": "Qwen/Qwen2.5-0.5B-Instruct",
        "library_name": "peft",
        "pipeline_tag": "text-generation",
        "tags": ["grpo", "trl", "lora"],
    }
    assert "A LoRA adapter of [Qwen/Qwen2.5-0.5B-Instruct](https://huggingface.co/Qwen/Qwen2.5-0.5B-Instruct)" in text
    assert 'from_pretrained("Qwen/Qwen2.5-0.5B-Instruct", revision="abc123", dtype="auto")' in text


def test_the_run_its_data_its_rewards_and_its_settings_are_told() -> None:
    run = trained()
    text = card_of(run)
    for row in (
        f"| Run | sums (`{run.pk}`) |",
        "| Steps | 4 of 20 |",
        "| Dataset | sums, version 1, 100 rows |",
        f"| sha256 of the rows | `{'0' * 64}` |",
        "| format | Think block, strict | 1 |",
        "| `beta` | 0.04 |",
        "| `loss_type` | dapo |",
        "| Rank | 4 |",
        "| trl | 1.16.0 |",
    ):
        assert row in text, text


def test_a_model_in_a_folder_is_named_without_saying_where_it_lies() -> None:
    text = card_of(trained(model="/secret/place/tiny"))
    assert "tiny (a local folder)" in text
    assert "/secret" not in text
    assert "base_model" not in head_of(text)


def test_a_folder_in_a_cache_of_the_hub_is_the_hubs_model() -> None:
    folder = f"/home/x/.cache/huggingface/hub/models--Qwen--Qwen3-0.6B/snapshots/{'a' * 40}"
    assert head_of(card_of(trained(model=folder)))["base_model"] == "Qwen/Qwen3-0.6B"


def test_hostile_names_break_neither_the_head_nor_the_text() -> None:
    text = card_of(trained(HOSTILE, model=f"/models/{HOSTILE}"))
    assert "license" not in head_of(text)
    assert len([line for line in text.splitlines() if line.startswith("# ")]) == 1
    for raw in (r"(?<!\\)<img", r"(?<!\\)\[a", "\u202e", r"(?<!\\)`code", "https://evil"):
        assert not re.search(raw, text), text


def test_an_evaluation_is_told_with_its_interval() -> None:
    run = trained()
    Run.objects.filter(pk=run.pk).update(step=4)
    run.dataset_version.validation_rows = 4
    run.dataset_version.save()
    [checkpoint] = checkpoints.of_run(run)
    assert run.reward_version is not None
    starting.start(run, [checkpoint], EvaluationSetup(run.dataset_version, 4, 2, run.reward_version, 0.5), a_user())
    evaluated(run, 0.0, "")
    evaluated(run, 1.0, checkpoint.folder)
    text = card_of(run)
    setup = "sums v1 | 0.5 | tags v1 | 4 | 2"
    assert f"| Before training | {setup} | 0.0 % | 0.0 % | 0.000 |  |" in text
    assert f"| This model | {setup} | 100.0 % | 100.0 % | 1.000 | +1.000 (+1.000 to +1.000) |" in text


def test_a_merged_model_is_a_whole_one_of_the_run_that_trained_the_adapter() -> None:
    run = trained(model=HUB)
    [adapter] = checkpoints.of_run(run)
    attempt = an_attempt(run=jobs.start(adapter, MERGE, a_user()))
    accept(attempt, [event(1, "checkpoint", step=4, path="checkpoints/checkpoint-4", bytes=9, kept=[4])])
    text = card_of(attempt.run)
    assert head_of(text)["library_name"] == "transformers"
    assert "with a LoRA adapter merged into it" in text
    assert f"`{run.pk}`" in text
    assert "PeftModel" not in text


def test_a_run_on_the_model_of_another_run_keeps_the_base_of_both() -> None:
    first = trained(model=HUB, lora=None)
    [model] = checkpoints.of_run(first)
    second = trained("second", step=2, model=model.path, lora=None)
    text = card_of(second)
    assert head_of(text)["base_model"] == HUB.path
    assert f"| Began with | sums, step 4 (`{first.pk}`) |" in text
