"""The verdict on a launch: which of its problems, missing choices and warnings comes first."""

import pytest

from runs.launch.new_run.drafting import Forecast
from runs.launch.new_run.panel import launch_label, readiness
from runs.launch.preflight.finding import Finding, Grade

STOP, WARN = Finding(Grade.STOP, "model", "No model.", ""), Finding(Grade.WARN, "model", "Large.", "")


@pytest.mark.parametrize(
    ("findings", "to_choose", "tone", "verdict", "checks"),
    [
        ([STOP, WARN], ["Model"], "bad", "Fix 1 problem first", "1 problem"),
        ([WARN], ["Model", "Host"], "open", "Still to choose: model, host", "2 to choose"),
        ([WARN, WARN], [], "warn", "Ready to launch, with 2 warnings", "2 warnings"),
        ([], [], "good", "Ready to launch", "Checked"),
    ],
)
def test_the_worst_comes_first(findings, to_choose, tone, verdict, checks):
    shown = readiness(findings, to_choose, "Launch run")
    assert (shown.tone, shown.verdict, shown.checks) == (tone, verdict, checks)
    assert shown.ready == (tone in {"good", "warn"})


def test_the_button_names_what_is_missing():
    assert readiness([], ["Model", "Host"], "Launch run").button == "Choose a model and 1 more to launch"
    assert readiness([STOP], [], "Launch run").button == "Fix 1 problem to launch"
    assert readiness([WARN], [], "Launch run").button == "Launch run"


def test_the_button_of_several_runs_has_their_number():
    assert launch_label(Forecast(True, "Launch now"), 3, 2) == "Launch 3 runs, 2 at a time"
    assert launch_label(Forecast(False, "Queue run"), 3, None) == "Queue 3 runs"
    assert launch_label(Forecast(False, "Queue run"), 0, None) == "Queue run"
