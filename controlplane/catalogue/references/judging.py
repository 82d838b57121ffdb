"""Scoring of reference answers: the components that judge them, the completions to score, and the failed scores."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.catalogue.versioned import checking
from controlplane.platform.confined.limits import NotFinished
from workers.contract.run import row_names
from workers.contract.run.spec import RewardSpec
from workers.contract.wire.documents import ContractError, from_dict
from workers.rewards.extract import FENCE, after_last
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Cost, Reward, RewardGroup, Row
from workers.rewards.scoring import score
from workers.rewards.tools import Tools

TOLERANCE = 1e-6
EXCERPT_LENGTH = 300
MAX_MESSAGE_LENGTH = 500
UNREADABLE_ANSWER = "The reward can't read this answer, so no completion gets a score on this row."


@dataclass(frozen=True)
class AnswerJudge:
    """Component of a reward config that judges reference answers."""

    name: str
    spec: RewardSpec | None = None
    reward: Reward | None = None
    skipped: str = ""
    """Reason why the component can't judge reference answers, or ""."""
    unjudged: str = ""
    """Reason why its parameters could not be checked now, so that the component is neither used nor skipped, or ""."""
    form: bool = False
    """True if the component scores style or length: the page then shows its mean, and no answer fails because of it."""

    @property
    def full(self) -> float | None:
        """Highest score of the component, or None if it has no maximum, so that an answer fails only if scoring
        fails."""
        return self.reward.expected_of(self.spec.params)[1] if self.reward and self.spec else None

    @property
    def compares(self) -> bool:
        """True if the component compares only with the answer, so that it should score every row that has one."""
        return self.reward is not None and "answer" in self.reward.needs and "test_cases" not in self.reward.needs

    @property
    def location(self) -> str:
        """Description of where the answer is in the completion."""
        params = {} if self.reward is None or self.spec is None else self.reward.defaults() | self.spec.params
        source = params.get("source")
        if source == "answer tag":
            return f"in <{params['tag']}>"
        if source == "after marker":
            return f"after {params['marker']}"
        return "in \\boxed{}" if source == "boxed" else "in a code block" if params.get("needs_block") else "as it is"


@dataclass(frozen=True)
class FailedAnswer:
    row: int
    component: str
    score: float | None
    message: str
    excerpt: str


@dataclass(frozen=True)
class JudgedBatch:
    """One component's results for a batch of rows."""

    scored: int
    """Number of rows that the component applied to."""
    failed: list[FailedAnswer]
    total: float = 0.0
    unavailable: str = ""
    """Reason why nothing could be scored on this machine, or ""."""


def judges(components: Sequence[Mapping[str, Any]], *, judged: Collection[str] = ()) -> list[AnswerJudge]:
    """Find what judges answers. The parameters of components that are `judged` already were checked before."""
    return [_judge(part, is_checked=str(part.get("name")) in judged) for part in components]


def judge(component: AnswerJudge, rows: Sequence[Row], tools: Tools, dataset: str = "") -> JudgedBatch:
    """Score the answers of rows that all have one and to which the component applies. `dataset`: the name of theirs."""
    if component.spec is None or component.reward is None:
        return JudgedBatch(0, [])
    if component.spec.applies_to:
        rows = [row for row in rows if row_names.applies(component.spec, row_names.names_of(row, dataset))]
    params = component.reward.defaults() | component.spec.params
    completions = [completion(row["answer"], params) for row in rows]
    scores = score(component.reward, completions, rows, component.spec.params, tools)
    failures = {failure.index: failure for failure in scores.failures}
    unavailable = next((failure.message for failure in scores.failures if failure.kind == "unavailable"), "")
    if unavailable:
        return JudgedBatch(0, [], unavailable=unavailable)
    total = math.fsum(value for value in scores.values if value is not None)
    if component.form:
        return JudgedBatch(sum(value is not None for value in scores.values), [], total)
    failed, scored_count = [], 0
    for index, (row, value) in enumerate(zip(rows, scores.values, strict=True)):
        failure = failures.get(index)
        is_unread = value is None and failure is None and component.compares
        scored_count += failure is not None or value is not None or is_unread
        is_low = value is not None and component.full is not None and value < component.full - TOLERANCE
        if failure is not None or is_low or is_unread:
            note = UNREADABLE_ANSWER if is_unread else scores.notes[index] if index < len(scores.notes) else ""
            message = (failure.message if failure else note)[:MAX_MESSAGE_LENGTH]
            failed.append(FailedAnswer(row["row"], component.name, value, message, _excerpt(row["answer"])))
    return JudgedBatch(scored_count, failed, total)


def completion(answer: str, params: Mapping[str, Any]) -> str:
    """Build a completion with the answer where a component with these parameters looks for it."""
    source, marker = params.get("source"), str(params.get("marker") or "")
    short = after_last(answer, marker) or answer
    if source == "answer tag":
        return f"<{params['tag']}>{short}</{params['tag']}>"
    if source == "after marker":
        return answer if marker in answer else f"{marker} {answer}"
    if source == "boxed":
        return answer if "\\boxed{" in answer else f"\\boxed{{{short}}}"
    return f"{FENCE}python\n{answer}\n{FENCE}" if params.get("needs_block") and FENCE not in answer else answer


def _judge(part: Mapping[str, Any], *, is_checked: bool) -> AnswerJudge:
    name = str(part.get("name"))
    try:
        spec = from_dict(RewardSpec, dict(part))
    except ContractError:
        return AnswerJudge(name, skipped="Another version of the control plane saved this component.")
    reward = LIBRARY.get(spec.function)
    if reward is None:
        return AnswerJudge(name, skipped="This reward is no longer in the library.")
    try:
        if not is_checked and checking.problems(reward, spec.params):
            return AnswerJudge(name, skipped="Its parameters are no longer valid.")
    except NotFinished as error:
        return AnswerJudge(name, unjudged=str(error))
    if reward.cost is Cost.TRAINER:
        return AnswerJudge(name, skipped="Only the trainer can compute this score.")
    if reward.cost is Cost.HTTP:
        return AnswerJudge(name, skipped="This reward calls another server.")
    form = {"answer", "test_cases"}.isdisjoint(reward.needs) and reward.group is not RewardGroup.CUSTOM
    return AnswerJudge(name, spec, reward, form=form)


def _excerpt(answer: str) -> str:
    plain_answer = answer.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return plain_answer[:EXCERPT_LENGTH] + ("…" if len(plain_answer) > EXCERPT_LENGTH else "")
