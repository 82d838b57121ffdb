"""Parameters that can't be judged now are neither right nor wrong, wherever they are read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.catalogue.references import judging
from controlplane.catalogue.versioned import checking
from controlplane.platform.confined.limits import Busy, NotFinished, StoppedAtLimit
from runs.launch import preflight
from runs.launch.preflight.finding import Grade
from tests.runs.launch.preflight.test_preflight import FINE
from workers.contract.run.spec import RewardSpec

PARAMS = {"pattern": "a+b"}


@pytest.mark.parametrize("error", [Busy("Checking these parameters"), StoppedAtLimit("Checking took too long.")])
def test_what_could_not_be_judged_is_warned_about_and_not_refused(
    monkeypatch: pytest.MonkeyPatch, error: NotFinished
) -> None:
    def unjudged(*_: object) -> list[str]:
        raise error

    monkeypatch.setattr(checking, "problems", unjudged)
    draft = replace(FINE, rewards=(RewardSpec("format", "regex_match", 1.0, PARAMS),))
    findings = [one for one in preflight.check(draft) if str(error) in one.cause]
    assert [one.grade for one in findings] == [Grade.WARN]
    [judge] = judging.judges([{"name": "format", "function": "numeric_match", "params": {}}])
    assert (judge.skipped, judge.unjudged) == ("", str(error))
