"""Launches that mix several datasets, by the page and by the API."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from controlplane.catalogue.datasets import archiving
from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
from controlplane.platform.http.tokens import attempt_token
from runs.engine.models import Run
from runs.engine.spec import mixed_versions, runs_on, spec_of
from runs.engine.trash.kinds import KINDS
from runs.insight.scoring import rows
from runs.launch.new_run import prefill
from runs.pages.run_page.spec_facts import model_and_data
from tests.controlplane.people import operator
from tests.datasets import ready_version
from tests.runs.api.clients import Program
from tests.runs.api.test_runs import a_spec
from tests.runs.launch.new_run.launching_page import a_ready_host, sent
from workers.contract.run.mixing import ROWS_OF_SOURCE

pytestmark = pytest.mark.django_db

MIX = "words v1, weight 0.5, at most 20 rows\nletters v1, weight 0.25"


def sources() -> None:
    for name in ("words", "letters"):
        chats = [{"prompt": [{"role": "user", "content": f"{name} {number}"}], "answer": "1"} for number in range(30)]
        ready_version(name, chats, mapping={"chat": True, "answer": "answer"})


def mixed_run(mix: object = MIX) -> Run:
    sources()
    spec = a_spec(sources=mix)
    return Run.objects.get(pk=spec["run_id"])


def test_a_run_takes_several_datasets_each_with_its_weight_and_bound() -> None:
    data = spec_of(mixed_run()).data
    assert [(source.name, source.weight, source.max_rows) for source in data.every_source] == [
        (data.name, 1.0, 0),
        ("words", 0.5, 20),
        ("letters", 0.25, 0),
    ]


def test_a_line_with_the_runs_own_dataset_sets_its_weight() -> None:
    sources()
    spec = a_spec()
    name = f"{spec['data']['name']} v{spec['data']['version']}"
    answer = Program().post("runs", {"spec": spec, "set": {"sources": f"words v1\n{name}, weight 3"}})
    data = spec_of(Run.objects.get(pk=answer.json()["run"]["id"])).data
    assert [(source.name, source.weight) for source in data.every_source] == [(data.name, 3.0), ("words", 1.0)]


def test_a_program_may_send_a_list_and_system_prompts_survive_a_clone_and_an_export() -> None:
    prompt = 'Answer "yes",\nor no \\ maybe.'
    mix = [{"dataset": "words v1", "weight": 2}, {"dataset": "letters v1", "max_rows": 5}]
    run = mixed_run(json.dumps(mix))
    values = prefill.from_run(run, None)
    assert values["sources"].splitlines()[1:] == ["words v1, weight 2.0", "letters v1, weight 1.0, at most 5 rows"]
    spec = run.spec | {"data": {**run.spec["data"]}}
    spec["data"]["sources"] = [{**source, "system_prompt": prompt} for source in run.spec["data"]["sources"]]
    answer = Program().post("preflight", {"spec": spec})
    assert answer.json()["launchable"], answer.json()
    again = Program().post("runs", {"spec": spec})
    assert again.status_code == 201, again.json()
    copy = Run.objects.get(pk=again.json()["run"]["id"])
    assert copy.spec["data"] == spec["data"]
    assert prefill.from_run(copy, None)["sources"].splitlines()[1].endswith(r"prompt: Answer \"yes\",\nor no \\ maybe.")


@pytest.mark.parametrize(
    ("mix", "said"),
    [
        ("words v1, weight 0", "The weight of words is 0"),
        ("words v1, weight -1", "The weight of words is -1"),
        ("words v1, weight nan", "The weight of words is nan"),
        ("words v1, weight much", "can't be read"),
        ("words v1\nwords v1", "Two datasets of the mix are named words"),
        ("missing v3", "There is no dataset missing v3"),
        ("words v9", "There is no dataset words v9"),
        ("raw v1", "isn't ready"),
        ("just a name", "can't be read"),
        ("[1]", "names no dataset"),
        ('[{"dataset": "words v1", "weight": "x"}]', "words v1: weight: expected float"),
        ('[{"dataset": "words v1", "surprise": 1}]', "surprise"),
        ("[", "not a valid JSON list"),
        ("[" * 20_000, "not a valid JSON list"),
        ('[{"dataset": "\\ud800 v1"}]', "not a valid JSON list"),
        ("words v1, system prompt: \\ud800", "can't be read"),
        ("words v1, weight 90, at most 5 rows", "words v1 has 5 prompts to train on, but a batch may take 8"),
        ("plain v1", "Conversations can't be mixed with plain-text prompts (plain v1)"),
    ],
)
def test_a_mix_that_can_not_be_gets_a_sentence_and_nothing_is_launched(mix: str, said: str) -> None:
    sources()
    DatasetVersion.objects.create(dataset=Dataset.objects.create(name="raw"), number=1, status="needs_mapping")
    ready_version("plain", [{"prompt": "?", "answer": "1"}])
    spec = a_spec()
    answer = Program().post("runs", {"spec": spec, "set": {"sources": mix, "per_device_train_batch_size": 64}})
    assert answer.status_code == 422
    assert said in json.dumps(answer.json(), ensure_ascii=False).replace("’", "'")
    assert Run.objects.count() == 1


def test_a_mixed_dataset_is_kept_while_a_run_needs_its_rows() -> None:
    run = mixed_run()
    words = Dataset.objects.get(name="words")
    assert list(runs_on(words)) == [run]
    assert archiving.refusal(words.versions.get()) == archiving.USED_BY_RUNS
    assert any(run.name in sentence for sentence in KINDS["dataset"].obstacles(words))
    other = ready_version("unused", [{"prompt": "?", "answer": "1"}])
    assert not runs_on(other.dataset).exists()


def test_a_source_deleted_between_the_page_and_the_launch_stops_the_launch() -> None:
    run = mixed_run()
    Dataset.objects.filter(name="words").update(deleted_at=run.created_at)
    answer = Program().post("runs", {"spec": run.spec})
    assert answer.status_code == 422
    assert "There is no dataset words v1" in answer.json()["error"]["what"]
    assert Run.objects.count() == 1


def test_a_runs_rows_are_found_in_their_own_dataset() -> None:
    run = mixed_run()
    found = rows.of_run(run, [ROWS_OF_SOURCE + 3, 2 * ROWS_OF_SOURCE + 7]).rows
    assert {number: row["answer"] for number, row in found.items()} == {
        ROWS_OF_SOURCE + 3: "1",
        2 * ROWS_OF_SOURCE + 7: "1",
    }
    assert [version.dataset.name for version in mixed_versions(run) if version][1:] == ["words", "letters"]


def test_a_host_gets_the_files_of_the_mix_and_no_others(client: Client) -> None:
    run = mixed_run()
    attempt = run.attempts.get()
    headers = {"Authorization": f"Bearer {attempt_token(attempt.pk)}"}
    for source in run.spec["data"]["sources"]:
        answer = client.get(f"/api/attempts/{attempt.pk}/sources/{source['sha256']}", headers=headers)
        assert (answer.status_code, answer.getvalue()[:4]) == (200, b"PAR1")
    assert client.get(f"/api/attempts/{attempt.pk}/sources/{'0' * 64}", headers=headers).status_code == 404


def test_the_page_keeps_a_mix_and_its_run_says_what_it_was_mixed_from() -> None:
    client = operator()
    sources()
    a_ready_host()
    page = client.post("/runs/new/", sent(sources="words v1, weight 0"))
    assert "The weight of words is 0" in page.content.decode()
    assert Run.objects.count() == 0
    client.post("/runs/new/", sent(sources=MIX))
    run = Run.objects.get()
    shown = str(dict(model_and_data(run, spec_of(run)))["Mixed from"])
    assert "words v1</a> 66.7 %, at most 20 rows" in shown
