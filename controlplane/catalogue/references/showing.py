"""Checks of reference answers for the pages: their verdicts, and the results of their components."""

from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import HttpRequest
from django.shortcuts import get_object_or_404

from controlplane.catalogue.references.judging import AnswerJudge, judges
from controlplane.catalogue.references.models import ReferenceCheck


@dataclass(frozen=True)
class AnswerVerdict:
    grade: str
    """Grade: good, watch or bad."""
    text: str
    fix: str = ""


@dataclass(frozen=True)
class ComponentVerdicts:
    judge: AnswerJudge
    scored: int
    failed: int
    not_applied: int
    """Number of answers that the component doesn't apply to."""
    mean: float | None


def checks_for(request: HttpRequest) -> QuerySet[ReferenceCheck]:
    """Find all checks, newest first; none unless a user is signed in."""
    if not request.user.is_authenticated:
        return ReferenceCheck.objects.none()
    return ReferenceCheck.objects.select_related(
        "dataset_version__dataset", "reward_version__config", "created_by"
    ).defer("dataset_version__report")


def check_for(request: HttpRequest, check_id: int) -> ReferenceCheck:
    return get_object_or_404(checks_for(request), pk=check_id)


def components(check: ReferenceCheck) -> list[ComponentVerdicts]:
    answer_count = check.done - check.unanswered
    results = []
    for judge in judges(check.reward_version.components, judged=check.counts):
        counts = check.counts.get(judge.name, {})
        scored, failed = int(counts.get("scored", 0)), int(counts.get("failed", 0))
        mean = counts["total"] / scored if scored and "total" in counts else None
        results.append(
            ComponentVerdicts(
                judge, scored, failed, 0 if judge.skipped or judge.unjudged else answer_count - scored, mean
            )
        )
    return results


def verdict(check: ReferenceCheck) -> AnswerVerdict:
    answer_count, failed_rows = check.done - check.unanswered, check.failed_rows
    if not answer_count:
        return AnswerVerdict("watch", "No answers were checked.", "Rows without an answer can't be checked.")
    reasons = list(check.failures.order_by("message").values_list("message", flat=True).distinct()[:2])
    if failed_rows == answer_count and len(reasons) == 1 and reasons[0] and answer_count > 1:
        return AnswerVerdict("bad", "Every answer fails for one reason.", reasons[0])
    if failed_rows == answer_count:
        sentence = "Every answer fails, so the answers are probably not at fault."
        return AnswerVerdict("bad", sentence, "Check the column mapping, and where the component looks for the answer.")
    if failed_rows:
        count = f"{failed_rows:,} of the {answer_count:,} answers that were checked"
        sentence = f"{count} fail: on these rows a correct completion can't get the full reward."
        return AnswerVerdict("bad", sentence, "Correct them, or train on a version without these rows.")
    if not any(result.scored for result in components(check) if not result.judge.form):
        return AnswerVerdict("watch", "No component applied to any answer.", "Rows without tests have none to run.")
    return AnswerVerdict("good", f"All {answer_count:,} answers that were checked get the full score.")
