"""Converting a model to GGUF from its page: offered where the host can, to whom, and what it shows at the end."""

from __future__ import annotations

import pytest

from controlplane.catalogue.hardware.models import Host
from runs.engine.models import Attempt, Run
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from runs.intake.host_api.ingest import accept
from tests.controlplane.people import operator, viewer
from tests.runs.builders import FREE, a_host, an_attempt, event
from tests.runs.engine.jobs.test_merging import trained
from tests.runs.pages.model_pages.test_model_pages import text
from workers.contract.run.jobs import GGUF

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]
INVENTORY = {"runs_dir": "/data/runs", "cpu_slots": 1}
ACT = "Convert to GGUF"


@pytest.fixture
def host() -> Host:
    return a_host("gpu-1", inventory={**INVENTORY, "converts_to_gguf": True})


def refusal(page: str, **form: str) -> str:
    return operator().post(f"{page}gguf", {"type": "f16", **form}, follow=True).content.decode()


def test_nothing_is_offered_where_the_host_names_no_folder() -> None:
    for lora in ({"lora": None}, {}):
        run, page = trained(**lora)
        assert ACT not in text(operator(), page)
        assert "its host has no llama.cpp folder" in refusal(page)
        assert not run.jobs.exists()


@pytest.mark.usefixtures("host")
def test_operators_are_offered_the_types_and_two_clicks_are_one_job() -> None:
    run, page = trained(lora=None)
    assert ACT not in text(viewer(), page)
    assert viewer().post(f"{page}gguf", {"type": "f16"}).status_code == 403
    shown = text(operator(), page)
    assert all(f'<option value="{kind}">' in shown for kind in ("auto", "bf16", "f16", "q8_0"))
    for _ in range(2):
        assert operator().post(f"{page}gguf", {"type": "q8_0"}).status_code == 302
    job = run.jobs.get()
    assert (job.kind, job.host.name) == (GGUF, "gpu-1")
    assert job.spec["job"] == {"name": "sums-step-1-q8_0", "type": "q8_0"}
    assert "a conversion of this model to q8_0 is in progress" in refusal(page)


@pytest.mark.usefixtures("host")
def test_an_adapter_is_to_be_merged_first() -> None:
    run, page = trained()
    shown = text(operator(), page)
    assert "Merge it first, then convert the merged model" in shown
    assert f'action="{page}gguf"' not in shown
    assert "Merge it first" in refusal(page)
    assert not run.jobs.exists()


@pytest.mark.usefixtures("host")
def test_another_type_is_refused() -> None:
    run, page = trained(lora=None)
    assert "is not one of the GGUF types" in refusal(page, type="--help")
    assert not run.jobs.exists()


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("facts", [{"folder": "/data/runs/j/1/gguf", "name": "s.gguf", "size": 2048}, {"size": "x"}])
def test_the_file_is_shown_with_its_folder_size_and_checksum(host: Host, facts: dict[str, object]) -> None:
    run, page = trained(lora=None)
    operator().post(f"{page}gguf", {"type": "f16"})
    attempt = an_attempt(run=run.jobs.get())
    Attempt.objects.filter(pk=attempt.pk).update(host=host)
    accept(attempt, [event(1, "result", text="The file is on the host.", facts={**facts, "sha256": "5" * 64})])
    attempt.refresh_from_db()
    move(attempt, RunStatus.SUCCEEDED, reason="completed", actor="test", facts={"receipt": FREE})
    shown = text(viewer(), page)
    whole = "folder" in facts
    assert ('data-copy="/data/runs/j/1/gguf/s.gguf"' in shown) == whole
    assert (f'data-copy="{"5" * 64}"' in shown) == whole
    assert ("The file is on the host." in shown) == (not whole)


@pytest.mark.usefixtures("host")
def test_a_merged_model_is_offered_it_too(host: Host) -> None:
    run, page = trained()
    operator().post(f"{page}merge")
    attempt = an_attempt(run=run.jobs.get())
    Attempt.objects.filter(pk=attempt.pk).update(host=host)
    accept(attempt, [event(1, "checkpoint", step=1, path="checkpoints/checkpoint-1", bytes=10, kept=[1])])
    merged = f"/models/{attempt.run.events.get(kind='checkpoint').pk}/"
    operator().post(f"{merged}gguf", {"type": "auto"})
    assert Run.objects.get(kind=GGUF).spec["job"]["name"] == "sums-step-1-merged-auto"
