"""Weights that don't reach vLLM, or only partly, are named by the second or third batch; rounding alone never is.

The scores of fixed tokens are simulated in both programs, and the metrics computed from them as the trainer does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from runs.insight.health.config import CHECK_SYNC
from runs.insight.health.history import History, Row, columns_of
from runs.insight.health.judging import sync_signals
from runs.insight.health.judging.rule import DIVERGENCE
from runs.insight.health.judging.rules import BY_ID
from tests.runs.insight.health.watched import ON_POLICY, Watched
from workers.contract.reports.metric_names import LOGP_GAP, POLICY_CHANGE, VLLM_CHANGED, VLLM_FOLLOWED
from workers.contract.run.hardware import WeightSync
from workers.trainer.rollouts.sync_figures import Scoring, SyncFigures

TOKENS = 188
BAD = BY_ID["sync"].bad or 0.0
WARNING = BY_ID["sync"].warning or 0.0


def synced(
    syncs: int,
    *,
    change: float,
    arrives: Callable[[int], float],
    noise: float = 0.01,
    gap: float = 0.0,
    seed: int = 1,
    resume: int = 0,
) -> list[Row]:
    """A run in which each update changes tokens by about `change`, and a share `arrives(sync)` of each update reaches
    vLLM. Scores that nothing reaches stay exactly the same. Other sequences are taken after the resume."""
    random = np.random.default_rng(seed)
    rows: list[Row] = []
    for sync in range(syncs):
        if sync in (0, resume):
            policy = reached = 0.0
            drift, apart = random.standard_t(4, TOKENS), random.normal(0.0, gap, TOKENS)
            figures, by_vllm = SyncFigures(), np.empty(0)
        else:
            policy, reached = policy + change, reached + change * arrives(sync)
        scores = -2.0 + policy * drift + random.normal(0.0, noise * bool(policy), TOKENS)
        if arrives(sync) or not len(by_vllm):
            by_vllm = -2.0 + apart + reached * drift + random.normal(0.0, noise, TOKENS)
        values = figures.add(Scoring(scores.tolist(), [by_vllm.tolist()]))
        rows.append((sync + 1, 10.0 * sync, {"reward": 0.5, **values}))
    return rows


def shares(rows: list[Row]) -> dict[int, float]:
    """What has arrived, as judged at each step."""
    signal = sync_signals.SIGNALS["sync"](History(ON_POLICY, columns_of(rows), step=len(rows)))
    return {} if signal is None else dict(zip(signal.at.tolist(), signal.value.tolist(), strict=True))


def watched(rows: list[Row]) -> Watched:
    run = Watched(replace(ON_POLICY, sync=WeightSync.LORA))
    for row in rows:
        run.rows.append(row)
        run.look()
    return run


@pytest.mark.parametrize("change", [1e-4, 0.01, 0.05, 0.3])
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.04])
@pytest.mark.parametrize("frozen", [1, 10])
def test_weights_that_stop_arriving_are_named_after_two_syncs(change: float, noise: float, frozen: int) -> None:
    for seed in range(5):
        judged = shares(synced(14, change=change, noise=noise, arrives=lambda s: s < frozen, seed=seed))
        assert min(step for step, share in judged.items() if share < BAD) == frozen + 2


def test_weights_that_stop_arriving_are_named_though_vllm_rounds_otherwise_each_time() -> None:
    for seed in range(5):
        judged = shares(synced(40, change=0.05, arrives=lambda s: 1.0 if s < 20 else 1e-9, seed=seed))
        assert min(judged[step] for step in range(3, 21)) > WARNING
        assert min(step for step, share in judged.items() if share < WARNING) <= 26
        assert judged[40] < BAD


@pytest.mark.parametrize("noise", [0.0, 0.005, 0.01, 0.02, 0.03])
def test_rounding_is_never_called_a_failure(noise: float) -> None:
    for seed in range(4):
        for change in (0.0, 1e-5, 1e-4, 1e-3, 0.01, 0.1):
            for gap in (0.0, 0.02, 0.1):
                judged = shares(synced(60, change=change, noise=noise, gap=gap, arrives=lambda s: 1, seed=seed))
                assert min(judged.values(), default=1.0) > WARNING, (noise, change, gap, seed)


@pytest.mark.parametrize("gap", [0.0, 0.02])
@pytest.mark.parametrize("tokens", [1, TOKENS])
def test_scores_that_stay_the_same_while_the_policy_only_rounds_are_no_failure(gap: float, tokens: int) -> None:
    random, figures = np.random.default_rng(2), SyncFigures()
    by_vllm = -2.0 + random.normal(0.0, gap, TOKENS)
    for sync in range(30):
        noise = np.zeros(TOKENS)
        noise[:tokens] = 2e-6 * random.normal(size=tokens)
        values = figures.add(Scoring((-2.0 + noise).tolist(), [by_vllm.tolist()]))
        assert (values.get(VLLM_CHANGED, 0.0), values.get(VLLM_FOLLOWED)) == (0.0, None), sync


def test_small_changes_that_never_arrive_are_named_once_they_add_up() -> None:
    figures, drift = SyncFigures(), np.random.default_rng(3).normal(size=TOKENS)
    by_vllm = -2.0 + np.random.default_rng(4).normal(0.0, 0.04, TOKENS)
    shares = [
        figures.add(Scoring((-2.0 + 2e-3 * sync * drift).tolist(), [by_vllm.tolist()])).get(VLLM_FOLLOWED)
        for sync in range(12)
    ]
    assert shares[1] is None
    assert shares[-5:] == [0.0] * 5


@pytest.mark.parametrize("part", [0.4, 0.5])
def test_a_part_of_the_update_is_a_warning(part: float) -> None:
    for seed in range(8):
        judged = shares(synced(12, change=0.06, arrives=lambda s: part, seed=seed))
        assert BAD <= list(judged.values())[-1] < WARNING
        assert not [share for share in judged.values() if share < BAD]
        assert min(step for step, share in judged.items() if share < WARNING) <= 4
    run = watched(synced(8, change=0.06, arrives=lambda s: part))
    assert [(rule, level) for _, rule, level in run.opened] == [("sync", "warning")]
    finding = run.finding("sync")
    assert finding is not None
    assert finding["sentence"].startswith("Only a part of the update reaches vLLM: ")


def test_the_first_sentence_says_it_and_the_advice_fits_the_weight_sync() -> None:
    run = watched(synced(3, change=0.1, arrives=lambda s: 0))
    finding = run.finding("sync")
    assert finding is not None
    assert finding["sentence"].startswith("The new weights don’t reach vLLM: ")
    assert "over HTTP" in finding["try"]
    assert run.health["verdict"] == "bad"
    assert "{" not in finding["sentence"] + finding["try"]
    assert set(CHECK_SYNC) == {None, *WeightSync}


def test_weights_that_arrived_before_do_not_arrive_any_more() -> None:
    finding = watched(synced(9, change=0.1, arrives=lambda s: s < 5)).finding("sync")
    assert finding is not None
    assert finding["sentence"].startswith("The new weights don’t reach vLLM any more: ")


def test_syncs_that_fail_after_a_resume_or_for_a_while() -> None:
    resumed = synced(20, change=0.05, arrives=lambda s: s < 10, resume=10)
    assert next(step for step, share in shares(resumed).items() if share < BAD) == 13
    run = watched(synced(40, change=0.05, arrives=lambda s: s < 10 or s > 18))
    assert [rule for _, rule in run.closed] == ["sync"]
    assert run.finding("sync") is None


def scored(sync: int, *, arrived: bool) -> Row:
    """A batch of a run whose changes are no larger than rounding, as the trainer logs it."""
    values = {POLICY_CHANGE: 0.04 * (sync > 0), VLLM_CHANGED: float(arrived), LOGP_GAP: 0.04, "reward": 0.5}
    return sync + 1, 10.0 * sync, values | ({} if arrived or not sync else {VLLM_FOLLOWED: 0.0})


def test_weights_that_arrive_again_close_the_finding_though_their_share_is_unknown() -> None:
    run = watched([scored(sync, arrived=sync > 9) for sync in range(20)])
    assert [(rule, level) for _, rule, level in run.opened] == [("sync", "bad")]
    assert [rule for _, rule in run.closed] == ["sync"]


def test_single_syncs_that_failed_are_not_taken_together() -> None:
    rows = [scored(sync, arrived=sync not in (0, 50, 60)) for sync in range(100)]
    assert min(shares(rows).values()) > WARNING
    assert watched(rows).opened == []


def test_a_failure_since_long_ago_is_still_named() -> None:
    rows = synced(500, change=0.003, arrives=lambda s: 0)[300:]
    assert all(share < BAD for share in shares(rows).values())


def test_what_follows_from_weights_that_do_not_arrive_raises_no_other_alert() -> None:
    assert all("sync" in BY_ID[rule].follows for rule in DIVERGENCE)
    run = watched([])
    run.config = replace(run.config, beta=0.04)
    gap = {"sampling/sampling_logp_difference/mean": 0.4, "kl": 3.0}
    run.rows = [(step, t, {**values, **gap}) for step, t, values in synced(60, change=0.2, arrives=lambda s: 0)]
    run.look()
    causes = {finding["rule"]: finding["cause"] for finding in run.health["findings"]}
    assert causes.pop("sync") == ""
    assert causes
    assert set(causes.values()) == {"sync"}


def test_the_worst_engine_counts_and_rounding_alone_says_nothing() -> None:
    before, after = [-1.0, -2.0, -3.0] * 30, [-1.5, -2.5, -3.0] * 30
    for second, changed, followed in (
        (after, 2 / 3, 1.0),
        (before, 0.0, 0.0),
        ([-1.25, -2.25, -3.0] * 30, 2 / 3, 0.5),
        ([-0.5, -1.5, -3.0] * 30, 2 / 3, -1.0),
    ):
        figures = SyncFigures()
        assert figures.add(Scoring(before, [before, before])) == {LOGP_GAP: 0.0, POLICY_CHANGE: 0.0}
        values = figures.add(Scoring(after, [after, second]))
        assert values[POLICY_CHANGE] == pytest.approx(1 / 3)
        assert values[VLLM_CHANGED] == pytest.approx(changed)
        assert values[VLLM_FOLLOWED] == pytest.approx(followed, abs=1e-9)
    rounded = SyncFigures()
    rounded.add(Scoring(before, [[-1.4, -2.4, -3.4] * 30]))
    assert VLLM_FOLLOWED not in rounded.add(Scoring(after, [[-1.1, -2.0, -3.2] * 30]))
