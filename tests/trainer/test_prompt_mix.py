"""Runs that draw from several datasets: what a batch has of each, in what order, and after a resume."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainer import builders
from tests.trainer.conftest import Train
from tests.trainer.test_pieces import from_dict_of, rows_of
from workers.contract.run.mixing import ROWS_OF_SOURCE, place_of
from workers.contract.run.prompts import DRAWN_WITHOUT, REPLACED, WITHOUT_SPREAD, PromptsSpec
from workers.contract.run.spec import RewardSpec
from workers.contract.wire.names import FileName
from workers.trainer import data
from workers.trainer.configuration.spec import SpecError
from workers.trainer.recording.samples import Sample, SampleFile
from workers.trainer.rollouts.prompt_history import PromptHistory
from workers.trainer.rollouts.prompt_mix import MixedSampler, sources_of

processes = [pytest.mark.trainer, pytest.mark.processes]
OVERLAP = (RewardSpec("overlap", "token_f1"),)
SIZES = (40, 9, 30)
WEIGHTS = (2.0, 1.0, 1.0)
ROWS = [source * ROWS_OF_SOURCE + row for source, size in enumerate(SIZES) for row in range(size)]
SYSTEM = {"role": "system", "content": "Answer in one word."}


def sampler(*, batch: int = 6, shuffle: bool = True, weights: tuple[float, ...] = WEIGHTS, seed: int = 7) -> Any:
    class Usual(SimpleNamespace):
        def __len__(self) -> int:
            return len(ROWS) // batch * batch

    usual = Usual(batch_size=batch, mini_repeat_count=1, repeat_count=1, shuffle=shuffle, seed=seed)
    return MixedSampler(usual, ROWS, weights)


def drawn(made: Any, epochs: int) -> list[int]:
    """The rows of so many epochs."""
    return [ROWS[index] for _ in range(epochs) for index in made]


def by_source(rows: list[int]) -> dict[int, list[int]]:
    places = [place_of(row) for row in rows]
    return {source: [row for other, row in places if other == source] for source in range(len(SIZES))}


def mixed_rows(**settings: Any) -> dict[str, tuple[list[dict[str, Any]], dict[str, Any]]]:
    """Of each four groups, two are sums, one words and one letters; no completion of letters 0 to 5 scores anything."""
    possible = "a e i o 0 1 2 3 4 5 6 7 8 9 < > = answer think"
    letters = [{"prompt": f"Letter {n}", "answer": "qqqqqqqq" if n < 6 else possible} for n in range(12)]
    words = [{"prompt": f"Word {n}", "answer": possible} for n in range(5)]
    return {"problems": ([], {"weight": 2}), "words": (words, {}), "letters": (letters, settings)}


def attempt(folder: Path, model: Path | str = "org/name", **asked: Any) -> Path:
    """Batches of 16 completions in four groups."""
    given = {"rewards": OVERLAP, "sources": mixed_rows(), **asked}
    grpo = {"per_device_train_batch_size": 16, **given.pop("grpo", {})}
    return builders.attempt_folder(folder, model=model, grpo=grpo, **given)


def groups(folder: Path, mode: str = "train") -> list[dict[str, Any]]:
    return [group for group in builders.lines(folder / FileName.SAMPLES) if group["mode"] == mode]


def sources_by_step(folder: Path) -> dict[int, Counter[str]]:
    trained = groups(folder)
    return {step: Counter(group["sources"][0] for group in trained if group["step"] == step) for step in steps(trained)}


def steps(trained: list[dict[str, Any]]) -> set[int]:
    return {group["step"] for group in trained}


class TestOrder:
    def test_each_batch_has_the_shares_to_within_one_prompt_and_a_run_to_within_a_hundredth(self) -> None:
        rows = drawn(sampler(), 16)
        batches = [rows[start : start + 6] for start in range(0, len(rows), 6)][:200]
        assert len(batches) == 200
        for batch in batches:
            counts = Counter(sources_of(batch))
            assert all(abs(counts[source] - 6 * weight / 4) < 1 for source, weight in enumerate(WEIGHTS))
        totals = Counter(source for batch in batches for source in sources_of(batch))
        assert [totals[source] / 1200 for source in range(3)] == pytest.approx([0.5, 0.25, 0.25], abs=0.01)

    def test_each_source_is_shuffled_and_gone_through_on_its_own(self) -> None:
        for source, rows in by_source(drawn(sampler(weights=(4, 1, 1)), 16)).items():
            size = SIZES[source]
            first, second = rows[:size], rows[size : 2 * size]
            assert sorted(first) == sorted(second) == list(range(size))
            assert first != second

    def test_the_order_follows_from_the_seed(self) -> None:
        assert drawn(sampler(), 2) == drawn(sampler(), 2) != drawn(sampler(seed=8), 2)

    def test_without_shuffling_each_source_keeps_its_order(self) -> None:
        assert by_source(drawn(sampler(shuffle=False), 2))[1][:12] == [*range(9), 0, 1, 2]

    def test_a_sampler_that_skips_epochs_goes_on_as_one_that_drew_them(self) -> None:
        made, resumed = sampler(), sampler()
        before = drawn(made, 3)
        for _ in range(3):
            next(iter(resumed), None)
        assert drawn(resumed, 2) == drawn(made, 2) != before

    def test_an_epoch_has_as_many_batches_as_of_one_dataset(self) -> None:
        assert len(drawn(sampler(), 1)) == len(sampler()) == 78


class TestRows:
    def test_rows_know_their_source_and_keep_their_columns(self, tmp_path: Path) -> None:
        folder = attempt(tmp_path / "a", sources={"words": ([{"prompt": "w", "answer": "x", "source": "own"}], {})})
        rows = data.read(folder, from_dict_of(folder))
        assert (len(rows.train), rows.train[-1]) == (41, ROWS_OF_SOURCE)
        assert (rows.by_id[3]["source"], rows.by_id.source_of(3)) == ("problems", "problems")
        word = rows.by_id[ROWS_OF_SOURCE]
        assert (word["prompt"], word["row"], word["source"]) == ("w", ROWS_OF_SOURCE, "own")
        assert rows.by_id.source_of(ROWS_OF_SOURCE) == "words"

    def test_a_source_is_bounded_to_a_sample_of_its_rows(self, tmp_path: Path) -> None:
        folder = attempt(tmp_path / "a", sources=mixed_rows(max_rows=4))
        chosen = [row for row in data.read(folder, from_dict_of(folder)).train if place_of(row)[0] == 2]
        assert len(chosen) == 4
        assert [place_of(row)[1] for row in chosen] != [0, 1, 2, 3]

    def test_a_source_may_have_a_system_prompt_of_its_own(self, tmp_path: Path) -> None:
        question = {"role": "user", "content": "?"}
        chats = [{"prompt": [{"role": "system", "content": "Be brief."}, question]}]
        settings = {"system_prompt": SYSTEM["content"]}
        folder = attempt(tmp_path / "a", dataset=chats, sources={"words": (chats, settings)})
        rows = data.read(folder, from_dict_of(folder))
        assert [rows.by_id[row]["prompt"] for row in rows.train] == [chats[0]["prompt"], [SYSTEM, question]]

    @pytest.mark.parametrize(
        ("source", "settings", "said"),
        [
            ([{"prompt": [{"role": "user", "content": "?"}]}], {}, r"plain-text prompts \(in problems\)"),
            ([{"prompt": "?"}], {"system_prompt": "Be brief."}, "words has plain-text prompts"),
            ([{"prompt": "?", "row": ROWS_OF_SOURCE}], {}, "words can't be mixed: it has too many rows"),
        ],
    )
    def test_sources_that_do_not_fit_are_refused(
        self, tmp_path: Path, source: list[dict[str, Any]], settings: dict[str, Any], said: str
    ) -> None:
        folder = attempt(tmp_path / "a", sources={"words": (source, settings)})
        with pytest.raises(SpecError, match=said):
            data.read(folder, from_dict_of(folder))

    def test_figures_are_logged_by_the_datasets_of_the_mix_and_by_tags(self, tmp_path: Path) -> None:
        words = [{"prompt": "w", "tags": ["hard"], "source": "own"}, {"prompt": "v", "source": "other"}]
        rows = rows_of(tmp_path, dataset=builders.rows(2), sources={"words": (words, {})})
        file = SampleFile(tmp_path / "s.jsonl", rows=rows, names=["a"], weights=[1.0], writes=True)
        samples = [Sample(row, "x", 1, "eos", [float(place_of(row)[0])], 0.0) for row in rows.train]
        metrics: dict[str, list[float]] = {f"sources/{name}/{of}": [] for name in NAMES for of in FIGURES}
        file.log_sources(samples, metrics, 1, "sum_then_normalize")
        assert [metrics[f"sources/{name}/reward"] for name in NAMES] == [[0.0], [1.0]]


NAMES, FIGURES = ("problems", "words"), ("reward", "length", "zero_spread")


class TestDifficulty:
    def test_prompts_are_drawn_from_the_source_that_each_place_has(self) -> None:
        made = PromptHistory(ROWS, seed=7, least_weight=0.1, mix=WEIGHTS)
        for row in ROWS[:20]:
            made.note(row, [0.0, 1.0])
        for _ in range(50):
            places = made.draw([0, 2, 0, 1], weighted=True)
            assert sources_of([ROWS[index] for index in places]) == [0, 2, 0, 1]
            assert len(set(places)) == 4

    def test_a_source_with_small_rewards_is_not_thought_useless_beside_another(self) -> None:
        made = PromptHistory(ROWS, seed=7, least_weight=0.1, mix=WEIGHTS)
        for row in ROWS:
            made.note(row, [0.0, 100.0] if row < ROWS_OF_SOURCE else [0.0, 0.01])
        assert set(made.weights().round(6).tolist()) == {1.0}

    def test_a_source_without_further_rows_leaves_its_places_empty(self) -> None:
        made = PromptHistory(ROWS, seed=7, least_weight=0.1, mix=WEIGHTS)
        tried = set(ROWS[40:49])
        assert sources_of([ROWS[i] for i in made.draw([1, 0, 1], excluded_rows=tried, weighted=False)]) == [0]


class TestOfATraining:
    pytestmark = processes

    def test_ten_steps_keep_the_mix_and_a_resumed_run_draws_what_an_unbroken_one_did(
        self, tiny_model: Path, tmp_path: Path, train: Train
    ) -> None:
        asked = {"grpo": {"max_steps": 10, "save_steps": 1}}
        whole = attempt(tmp_path / "whole", tiny_model, **asked)
        done = train(whole)
        assert done.returncode == 0, done.stderr[-2000:]
        assert all(of == {"problems": 2, "words": 1, "letters": 1} for of in sources_by_step(whole).values())
        assert len(sources_by_step(whole)) == 10
        assert all(f"sources/{name}/reward" in builders.logs(whole)[4] for name in ("problems", "words", "letters"))
        rest = attempt(tmp_path / "rest", tiny_model, resume_from=str(whole / "checkpoints/checkpoint-6"), **asked)
        assert train(rest).returncode == 0
        assert builders.logs(rest) == {step: of for step, of in builders.logs(whole).items() if step > 6}

    def test_groups_are_replaced_by_prompts_of_their_own_source(
        self, tiny_model: Path, tmp_path: Path, train: Train
    ) -> None:
        run = {"prompts": PromptsSpec(extra_rounds=8, by_difficulty=True)}
        asked = {"grpo": {"max_steps": 8, "save_steps": 1}, "run": run}
        whole = attempt(tmp_path / "whole", tiny_model, **asked)
        done = train(whole)
        assert done.returncode == 0, done.stderr[-2000:]
        assert all(of == {"problems": 2, "words": 1, "letters": 1} for of in sources_by_step(whole).values())
        assert any(of[DRAWN_WITHOUT] > of[WITHOUT_SPREAD] for of in builders.logs(whole).values())
        assert "letters" in {group["sources"][0] for group in groups(whole, REPLACED)}
        rest = attempt(tmp_path / "rest", tiny_model, resume_from=str(whole / "checkpoints/checkpoint-5"), **asked)
        assert train(rest).returncode == 0
        assert builders.logs(rest) == {step: of for step, of in builders.logs(whole).items() if step > 5}

    def test_two_ranks_draw_the_same_mix(self, tiny_model: Path, tmp_path: Path, train: Train) -> None:
        ranks = {"processes": 2, "strategy": "ddp"}
        folder = attempt(
            tmp_path / "a", tiny_model, hardware=ranks, grpo={"max_steps": 3, "per_device_train_batch_size": 8}
        )
        done = train(folder)
        assert done.returncode == 0, done.stderr[-2000:]
        assert all(of == {"problems": 2, "words": 1, "letters": 1} for of in sources_by_step(folder).values())

    @pytest.mark.parametrize(
        ("sources", "said"),
        [
            ({"words": ([{"prompt": "?"}], {"weight": 3})}, "words has 1 prompts to train on, but a batch may take 3"),
            ({"words": ([{"prompt": "?"}], {"weight": 0})}, "The weight of words is 0, but it must be above 0"),
        ],
    )
    def test_a_source_too_small_for_its_share_or_without_one_ends_the_run_before_its_first_step(
        self, tiny_model: Path, tmp_path: Path, train: Train, sources: Any, said: str
    ) -> None:
        done = train(attempt(tmp_path / "a", tiny_model, sources=sources))
        assert done.returncode in (3, 4)
        assert re.search(said, done.stderr.splitlines()[-1])
