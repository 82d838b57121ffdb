"""Batches generated one step ahead: real TRL beside a fake vLLM, and the books that are kept of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes.running_vllm import RunningVllm
from tests.trainer import builders
from tests.trainer.conftest import Start, Train
from tests.trainer.preloaded import Preloaded
from tests.trainer.test_lora_swap import AGREE, ALLOWED, ATTEMPT, LORA, sampling
from tests.trainer.test_prompt_selection import dataset
from tests.waiting import wait_until
from workers.contract.run.hardware import Rollout, ServerSpec, WeightSync
from workers.contract.run.overlapping import AHEAD_SECONDS, STALENESS, TRUNCATED
from workers.contract.run.prompts import EXTRA_ROUNDS, PromptsSpec
from workers.contract.run.spec import LoraSpec, RewardSpec
from workers.contract.wire.names import FileName
from workers.trainer.configuration.spec import TrainerError
from workers.trainer.rollouts.async_generation import AsyncGeneration, BatchOrder, NextBatches

processes = [pytest.mark.trainer, pytest.mark.processes]
GRPO: dict[str, Any] = {"learning_rate": 1e-2, "max_steps": 5, "num_iterations": 1}
GAP = "sampling/sampling_logp_difference/max"


def attempt(folder: Path, model: Path, server: RunningVllm, **asked: Any) -> Path:
    profile = {"rollout": Rollout.SERVER, "server": ServerSpec(weight_sync=WeightSync.LORA, request_timeout_s=60)}
    hardware = {**profile, **asked.pop("hardware", {})}
    run = {"lora": LoraSpec(r=8, alpha=16), "ahead": True, **asked.pop("run", {})}
    placement, grpo = {"ports": [server.port]}, {**GRPO, **asked.pop("grpo", {})}
    rewards = asked.pop("rewards", (RewardSpec("variety", "unique_chars"),))
    return builders.attempt_folder(
        folder, model=model, hardware=hardware, placement=placement, grpo=grpo, run=run, rewards=rewards, **asked
    )


def groups(folder: Path, mode: str = "train") -> list[dict[str, Any]]:
    return [group for group in builders.lines(folder / FileName.SAMPLES) if group["mode"] == mode]


def rows(folder: Path) -> list[tuple[int, int]]:
    return [(group["step"], group["row"]) for group in groups(folder)]


@pytest.fixture
def canned_server() -> Iterator[RunningVllm]:
    with RunningVllm(*LORA, name=ATTEMPT, **ALLOWED) as server:
        yield server.ready()


class TestOfATraining:
    pytestmark = processes

    def test_each_batch_is_sampled_one_push_before_it_is_trained_on_and_no_push_meets_a_request(
        self, preloaded: Preloaded, tiny_model: Path, tmp_path: Path, train: Train
    ) -> None:
        with sampling(preloaded, tiny_model) as server:
            server.ready()
            grpo = {"eval_strategy": "steps", "eval_steps": 3, "save_steps": 3}
            folder = attempt(tmp_path / "whole", tiny_model, server, grpo=grpo, eval_rows=2)
            done = train(folder)
            assert done.returncode == 0, done.stderr[-2000:]
            told = re.findall(r"(Asked(?= for \d+ completions)|Generated|Loaded).*'(policy-v\d)'[,\n]", server.log())
            checkpoint = str(folder / "checkpoints/checkpoint-3")
            rest = attempt(tmp_path / "rest", tiny_model, server, grpo=grpo, eval_rows=2, resume_from=checkpoint)
            done = train(rest)
            assert done.returncode == 0, done.stderr[-2000:]
        logged = builders.logs(folder)
        assert [logged[step][STALENESS] for step in range(1, 6)] == [0, 1, 1, 1, 1]
        assert {group["step"]: group["policy"] for group in groups(folder)} == {1: 0, 2: 0, 3: 1, 4: 2, 5: 3}
        # The log-probabilities are those of the older weights; those that evaluate are the newest.
        assert logged[1][GAP] < AGREE < min(logged[step][GAP] for step in range(2, 6))
        evaluated = [of for of in builders.lines(folder / FileName.METRICS) if f"eval_{GAP}" in of["data"]]
        assert [of["step"] for of in evaluated] == [3, 5]
        assert all(of["data"][f"eval_{GAP}"] < AGREE for of in evaluated)
        assert all(0 <= of[TRUNCATED] <= 1 for of in logged.values())
        assert [step for step, of in logged.items() if AHEAD_SECONDS in of] == [2, 3, 4, 5]
        loads = [place for place, (what, _) in enumerate(told) if what == "Loaded"]
        for place in loads:
            assert [what for what, _ in told[:place]].count("Asked") == [what for what, _ in told[:place]].count(
                "Generated"
            )
        assert [name for what, name in told if what == "Asked"] == [
            *("policy-v1", "policy-v1", "policy-v2", "policy-v3", "policy-v4", "policy-v4", "policy-v6")
        ], "v4: the evaluation's and the fifth batch; no sixth batch is asked for before the last evaluation"
        # Resumed: the same prompts, the first batch of them from the weights of the checkpoint.
        assert rows(rest) == [each for each in rows(folder) if each[0] > 3]
        assert {group["step"]: group["policy"] for group in groups(rest)} == {4: 3, 5: 3}

    def test_several_updates_a_batch_two_epochs_and_two_ranks_train_on_the_prompts_that_are_trained_on_without(
        self, canned_server: RunningVllm, tiny_model: Path, tmp_path: Path, train: Train
    ) -> None:
        grpo = {"num_iterations": 2, "max_steps": 10, "per_device_train_batch_size": 4, "save_strategy": "no"}
        found = {}
        for ahead in (False, True):
            folder = attempt(
                tmp_path / str(ahead),
                tiny_model,
                canned_server,
                grpo=grpo,
                run={"ahead": ahead},
                hardware={"processes": 2, "strategy": "ddp"},
                dataset=builders.rows(6),
            )
            done = train(folder)
            assert done.returncode == 0, done.stderr[-2000:]
            found[ahead] = rows(folder), builders.logs(folder)
        assert found[True][0] == found[False][0]
        assert len(found[True][0]) == 10
        assert [of.get(STALENESS) for of in found[True][1].values()] == [0, None, 2, None, 2, None, 2, None, 2, None]
        assert all(STALENESS not in of for of in found[False][1].values())

    def test_a_server_that_dies_while_it_generates_ahead_ends_the_trainer_with_a_sentence(
        self, tiny_model: Path, tmp_path: Path, start: Start
    ) -> None:
        with RunningVllm(*LORA, name=ATTEMPT, **ALLOWED, FAKE_VLLM="hangs_at:3") as server:
            folder = attempt(tmp_path / "a", tiny_model, server.ready(), grpo={"max_steps": 9, "save_strategy": "no"})
            trainer = start("-m", "workers.trainer", folder)
            wait_until(lambda: len(builders.logs(folder)) == 2 or trainer.poll() is not None, server.log)
            server.children[0].kill()
            _, stderr = trainer.communicate(timeout=60)
        assert trainer.returncode == 5, stderr
        assert re.match(
            r"The vLLM server at 127\.0\.0\.1:\d+ is gone: /v1/completions failed\. ", stderr.splitlines()[-1]
        )

    def test_a_stop_saves_without_waiting_for_the_batch_that_is_generated_ahead(
        self, tiny_model: Path, tmp_path: Path, start: Start
    ) -> None:
        with RunningVllm(*LORA, name=ATTEMPT, **ALLOWED, FAKE_VLLM="hangs_at:2") as server:
            folder = attempt(tmp_path / "a", tiny_model, server.ready(), grpo={"max_steps": 9})
            (folder / FileName.STOP).touch()
            trainer = start("-m", "workers.trainer", folder)
            _, stderr = trainer.communicate(timeout=120)
        assert trainer.returncode == 0, stderr
        assert (folder / "checkpoints/checkpoint-1").is_dir()
        assert not (folder / "checkpoints/checkpoint-2").exists()

    def test_dynamic_sampling_takes_its_fresh_prompts_from_the_newest_weights(
        self, preloaded: Preloaded, tiny_model: Path, tmp_path: Path, train: Train
    ) -> None:
        with sampling(preloaded, tiny_model) as server:
            server.ready()
            asked = {"dataset": dataset(7), "rewards": (RewardSpec("overlap", "token_f1"),)}
            run = {"prompts": PromptsSpec(extra_rounds=6)}
            folder = attempt(tmp_path / "a", tiny_model, server, run=run, grpo={"max_steps": 4}, **asked)
            done = train(folder)
        assert done.returncode == 0, done.stderr[-2000:]
        logged = builders.logs(folder)
        assert any(of[EXTRA_ROUNDS] for of in logged.values())
        for step, of in logged.items():
            policies = [group["policy"] for group in groups(folder) if group["step"] == step]
            assert set(policies) <= {step - 1, max(step - 2, 0)}
            assert of[STALENESS] == pytest.approx(step - 1 - sum(policies) / len(policies))
        assert any(group["policy"] == group["step"] - 1 for group in groups(folder) if group["step"] > 1)


# --- the books -----------------------------------------------------------------------------------------------------


def test_batches_are_found_over_epochs_and_from_within_one() -> None:
    order = BatchOrder(iter([[4, 2, 0, 1, 3], [0, 1, 2, 3, 4], [2, 1, 0, 4, 3]]), size=2, first_epoch=7)
    here, coming = order.find(0)
    assert (here.epoch, here.number, here.indexes) == (7, 1, (0, 1))
    assert (coming.epoch, coming.number, coming.indexes) == (8, 0, (0, 1))
    assert order.find(1)[0] == coming


def test_prompts_that_the_sampler_does_not_deal_are_an_error() -> None:
    order = BatchOrder(iter([[0, 1]] * 9), size=1)
    with pytest.raises(TrainerError, match="not those that the sampler chose"):
        order.find(5)


class Client:
    def __init__(self) -> None:
        self.asked: list[Any] = []

    def generate(self, prompts: list[list[int]], **settings: Any) -> str:
        self.asked.append((prompts, settings))
        if prompts == [[3]]:
            raise ConnectionError("gone")
        return f"answer to {prompts}"


class Trainer:
    """The calls of a training that generates by TRL's own client."""

    def __init__(self, *, main: bool = True) -> None:
        self.step, self.pushes = 0, 0
        self.client = Client()
        self.generation = SimpleNamespace(vllm_client=self.client, sync_weights=self.push)
        self.order = BatchOrder(iter([list(range(9))]), size=1)
        self.ahead = AsyncGeneration(
            self.generation,
            main=main,
            step=lambda: self.step,
            tokenize=lambda places: [[place] for place in places],
            needed=lambda batch: batch.number < 4,
        )

    def push(self) -> None:
        self.pushes += 1

    def batch(self, number: int) -> tuple[str, int]:
        self.ahead.expect(*self.order.find(number))
        self.generation.sync_weights()
        answer = self.client.generate(prompts=[[number]], n=4)
        return answer, self.ahead.policy_step()


def test_the_next_batch_is_asked_for_with_the_same_settings_and_its_version_is_known() -> None:
    trainer = Trainer()
    assert trainer.batch(0) == ("answer to [[0]]", 0)
    trainer.step = 1
    assert trainer.batch(1) == ("answer to [[1]]", 0)
    assert trainer.client.generate(prompts=[[7]], n=2) == "answer to [[7]]", "an evaluation's"
    assert trainer.ahead.policy_step() == 1
    trainer.step = 2
    assert trainer.batch(2) == ("answer to [[2]]", 1)
    assert trainer.client.asked[:2] == [([[0]], {"n": 4}), ([[1]], {"n": 4})]


def test_a_request_that_fails_ahead_is_raised_before_the_next_push() -> None:
    trainer = Trainer()
    for number in (0, 1, 2):
        trainer.batch(number)
    with pytest.raises(ConnectionError, match="gone"):
        trainer.batch(3)
    assert trainer.pushes == 3


def test_other_ranks_know_the_version_without_a_request() -> None:
    trainer = Trainer(main=False)
    assert trainer.batch(0)[1] == 0
    trainer.step = 1
    assert trainer.batch(1)[1] == 0
    assert [prompts for prompts, _ in trainer.client.asked] == [[[0]], [[1]]]


class Examples(list[dict[str, Any]]):
    """A data set, with its column of rows."""

    def __getitem__(self, key: Any) -> Any:
        return [example["row"] for example in self] if key == "row" else super().__getitem__(key)


class Places(list[int]):
    """What the sampler draws, one prompt a batch."""

    batch_size = 1

    def __init__(self) -> None:
        super().__init__(range(3))


def test_a_batch_is_told_with_its_rows_before_it_is_asked_for() -> None:
    client = Client()
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(is_main_process=True),
        args=SimpleNamespace(steps_per_generation=1, generation_batch_size=1, gradient_accumulation_steps=1),
        num_generations=1,
        num_iterations=1,
        state=SimpleNamespace(global_step=0, max_steps=9),
        train_dataset=Examples({"row": 20 + place, "prompt": place} for place in range(3)),
        vllm_generation=SimpleNamespace(vllm_client=client, sync_weights=lambda: None),
        _get_train_sampler=lambda: Places(),
        _tokenize_prompts=lambda prompts: ([[prompt] for prompt in prompts],),
    )
    told: list[Any] = []
    batches = NextBatches(trainer, lambda prompts, rows: told.append((prompts, rows, len(client.asked))))
    batches.expect(20, epochs_done=0)
    client.generate(prompts=[[0]])
    assert told == [([[1]], [21], 1)]
