"""Reward components that apply only to the rows of some datasets, sources or tags."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import builders, reward_runs
from tests.trainer.conftest import Train
from tests.trainer.preloaded import Preloaded
from tests.trainer.test_pieces import rows_of
from tests.trainer.test_prompt_mix import attempt, groups, mixed_rows
from workers.contract.run import row_names
from workers.contract.run.mixing import ROWS_OF_SOURCE, SourceSpec
from workers.contract.run.row_names import applies_to_row
from workers.contract.run.spec import RewardSpec
from workers.contract.wire.names import EventKind, FileName
from workers.rewards.advantages import advantages
from workers.rewards.tools import Tools
from workers.trainer.scoring import rewards
from workers.trainer.scoring.failures import Failures

SOURCES = (SourceSpec("problems", 1, "", 40), SourceSpec("words", 1, "", 2))
ROWS: list[dict[str, Any]] = [
    {"row": 3},
    {"row": ROWS_OF_SOURCE, "source": "own", "tags": ["hard", " algebra "]},
    {"row": ROWS_OF_SOURCE + 1, "subject": "geometry", "tags": "hard"},
]


def test_a_component_applies_to_rows_by_their_dataset_source_or_tag_and_other_names_are_refused() -> None:
    for names, applied in (
        ((), [True, True, True]),
        (("problems",), [True, False, False]),
        (("words",), [False, True, True]),
        (("own", "problems"), [True, True, False]),
        (("hard",), [False, True, True]),
        (("algebra", "geometry"), [False, True, True]),
        (("Hard", "wor"), [False, False, False]),
    ):
        reward = RewardSpec("a", "token_f1", applies_to=names)
        assert [applies_to_row(reward, row, SOURCES) for row in ROWS] == applied, names
    for names, said in (  # names that could match no row
        (("fine", "as well"), ""),
        (("",), "is not a name"),
        ((" a",), "begins or ends with a space"),
        (("a" * 201,), "too long"),
        (("a\u202eb",), "can't be shown"),
        (("a", "a"), "twice"),
        (tuple(map(str, range(33))), "At most 32"),
    ):
        assert said in " ".join(row_names.problems(names)), names
        assert bool(said) == bool(list(row_names.problems(names))), names


def test_a_function_scores_only_its_rows_also_by_turn_and_counts_them(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, dataset=builders.rows(2), sources={"words": ([{"prompt": "w", "answer": "ab"}], {})})
    batch: Sequence[int] = [0, 0, ROWS_OF_SOURCE, ROWS_OF_SOURCE]
    word, nothing = RewardSpec("w", "token_f1", applies_to=("words",)), RewardSpec("n", "token_f1", applies_to=("x",))
    by_turn = RewardSpec("t", "token_f1", per_turn=True, applies_to=("words",))
    tools = Tools(open_sandbox=lambda _: pytest.fail("no reward needs one"))
    failures = Failures(share=0.5, event=lambda *_, **__: None)
    factory = rewards.RewardFunctions(rows, tools, failures, lambda name: nullcontext(), sources=SOURCES)
    told: dict[str, float] = {}
    texts = ["ab", "c", "ab", "c"]
    scored = [
        function(completions=texts, row=batch, log_metric=told.__setitem__)
        for function in factory.of([word, nothing, by_turn])
    ]
    assert scored == [[None, None, 1.0, 0.0], [None] * 4, [None, None, 1.0, 0.0]]
    assert factory.turn_scores["t"] == [[None], [None], [1.0], [0.0]]
    assert [told[row_names.rows_metric(name)] for name in "wnt"] == [0.5, 0.0, 0.5]
    assert [told[f"rewards/{name}/failed"] for name in "wnt"] == [0.0, 0.0, 0.0]


@pytest.mark.trainer
@pytest.mark.processes
def test_a_run_trains_on_the_components_of_each_row_and_on_none_where_none_applies(
    preloaded: Preloaded, tiny_model: Path, tmp_path: Path, train: Train
) -> None:
    model = reward_runs.make_models(preloaded, tiny_model, tmp_path).fine
    specs = (
        RewardSpec("variety", "unique_chars_normalised", applies_to=("problems", "letters")),
        RewardSpec("overlap", "token_f1", 0.5, applies_to=("letters",)),
        RewardSpec("likes", "reward_model", 0.5, {"model": str(model)}, applies_to=("letters",)),
        RewardSpec("nobody", "token_f1", applies_to=("verses",)),
    )
    for aggregation, ranks in (("sum_then_normalize", 1), ("normalize_then_sum", 2)):
        folder = attempt(
            tmp_path / aggregation,
            tiny_model,
            rewards=specs,
            sources=mixed_rows(),
            grpo={
                "max_steps": 2,
                "multi_objective_aggregation": aggregation,
                "per_device_train_batch_size": 16 // ranks,
            },
            hardware={"processes": ranks, "strategy": "ddp"} if ranks > 1 else {},
        )
        done = train(folder)
        assert done.returncode == 0, done.stderr[-2000:]
        assert EventKind.METRICS_LEFT_OUT not in {line["kind"] for line in builders.lines(folder / FileName.METRICS)}
        for step in (1, 2):
            check_step(folder, step, [spec.name for spec in specs], aggregation)


def check_step(folder: Path, step: int, names: list[str], aggregation: str) -> None:
    """The scores, totals, advantages and means of a step are those of the components that apply."""
    expected = {"problems": {"variety"}, "letters": {"variety", "overlap", "likes"}, "words": set()}
    batch = [group for group in groups(folder) if group["step"] == step]
    members = [one for group in batch for one in group["completions"]]
    for group in batch:
        for one in group["completions"]:
            applied = {name for name, score in one["rewards"].items() if score is not None}
            assert applied == expected[group["sources"][0]]
    values = [[one["rewards"][name] for one in members] for name in names]
    result = advantages(values, [1.0, 0.5, 0.5, 1.0], 4, aggregation)
    assert [one["reward"] for one in members] == pytest.approx(result.totals)
    assert [one["advantage"] for one in members] == pytest.approx(result.advantages, abs=1e-2)
    logged = builders.logs(folder)[step]
    assert [logged[row_names.rows_metric(name)] for name in names] == [0.75, 0.25, 0.25, 0.0]
    letters = [score for score in values[1] if score is not None]
    assert logged["rewards/overlap/mean"] == pytest.approx(sum(letters) / len(letters), abs=1e-5)
    assert math.isfinite(logged["loss"])
