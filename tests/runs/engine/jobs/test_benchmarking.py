"""Standard benchmarks from a model's page: what is started, and how the results are shown."""

from __future__ import annotations

import pytest

from runs.engine import checkpoints
from runs.engine.models import Run
from runs.intake.host_api.ingest import accept
from runs.pages.model_pages import card
from tests.controlplane.people import operator, viewer
from tests.runs.builders import an_attempt, ended, event
from tests.runs.engine.jobs.test_merging import trained
from tests.runs.pages.model_pages.test_model_pages import text
from workers.contract.run.jobs import BENCHMARK

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]
FORM = {"tasks": ["gsm8k", "arc_easy"], "limit": "100"}


def test_an_operator_starts_one_on_the_models_host() -> None:
    run, page = trained()
    for _ in range(2):
        assert operator().post(f"{page}benchmark", FORM).status_code == 302
    job = run.jobs.get()
    assert (job.kind, job.spec["job"]) == (BENCHMARK, {"tasks": ["gsm8k", "arc_easy"], "limit": 100})
    assert (job.host.name, job.spec["hardware"]["trainer_gpus"]) == ("gpu-1", 0)
    answer = operator().post(f"{page}benchmark", {**FORM, "limit": "7"}, follow=True)
    assert "another benchmark of this model is in progress" in answer.content.decode()
    assert viewer().post(f"{page}benchmark", FORM).status_code == 403


def test_a_run_on_a_gpu_is_benchmarked_on_one() -> None:
    run, page = trained()
    Run.objects.update(spec={**run.spec, "hardware": {"profile": "p", "trainer_gpus": 4}})
    operator().post(f"{page}benchmark", FORM)
    assert run.jobs.get().spec["hardware"]["trainer_gpus"] == 1


@pytest.mark.parametrize(
    "form", [{"limit": "5"}, {**FORM, "limit": "-1"}, {**FORM, "limit": "9" * 30}, {**FORM, "tasks": ["../x"]}]
)
def test_what_can_t_be_asked_for_is_refused(form: dict[str, object]) -> None:
    run, page = trained()
    answer = operator().post(f"{page}benchmark", form, follow=True)
    assert "This can&#x27;t be benchmarked" in answer.content.decode()
    assert not run.jobs.exists()


def test_the_results_stand_on_the_models_page_beside_what_could_not_be_fetched() -> None:
    run, page = trained()
    operator().post(f"{page}benchmark", FORM)
    attempt = an_attempt(run=run.jobs.get())
    value = {"task": "gsm8k", "metric": "exact_match (strict-match)", "value": 0.5, "stderr": 0.1, "n": 100}
    told = {"results": [value, {"task": "x", "metric": "acc", "value": "high"}], "failed": []}
    words = "The data of arc_easy can't be fetched from the hub on this host: ConnectionError"
    accept(attempt, [event(1, "result", text=words, facts=told), ended(2)])
    shown = text(viewer(), page)
    assert "GSM8K" in shown
    assert '0.500 <span class="muted small">± 0.100</span>' in shown
    assert "The data of arc_easy can&#x27;t be fetched" in shown
    [checkpoint] = checkpoints.of_run(run)
    assert "| GSM8K | exact_match (strict-match) | 0.500 | 0.100 | 100 |" in card.text(checkpoint).replace("\\", "")
