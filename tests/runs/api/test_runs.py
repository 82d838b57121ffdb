from __future__ import annotations

import json

import pytest
from django.utils import timezone

from controlplane.catalogue.hardware.models import ModelInspection
from controlplane.platform import safe_yaml
from controlplane.platform.accounts.models import ApiScope
from runs.engine.models import Run
from runs.engine.records import RunEvent
from tests.runs.api.clients import Program
from tests.runs.builders import a_run, an_attempt
from tests.runs.launch.new_run.launching_page import a_config, a_ready_host, a_version, cpu_profile
from workers.contract.wire.names import Task

pytestmark = pytest.mark.django_db


def without_id(spec):
    return {name: value for name, value in spec.items() if name != "run_id"}


def a_spec(**chosen):
    """Of a run that the API has launched."""
    a_ready_host()
    rows = {"dataset_version": a_version().pk, "reward_version": a_config().pk, "profile": cpu_profile().pk}
    answer = Program().post("runs", {"name": "sums", "set": {"model": "/models/tiny", **rows, **chosen}})
    assert answer.status_code == 201, answer.json()
    return Run.objects.get(pk=answer.json()["run"]["id"]).spec


def test_seeds_and_a_grid_launch_a_group_once_and_one_run_is_no_group():
    spec, program = a_spec(), Program()
    several = {"spec": spec, "set": {"seeds": 2, "grid": "beta: 0.01, 0.02", "at_once": 1}}
    first, again = (program.post("run-groups", several, headers={"Idempotency-Key": "k"}) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert {run["id"] for run in first.json()["runs"]} == {run["id"] for run in again.json()["runs"]}
    assert len(first.json()["runs"]) == 4
    refused = [program.post("run-groups", {"spec": spec, "set": wrong}) for wrong in ({}, {"grid": "beta: -1, 0.1"})]
    assert [answer.status_code for answer in refused] == [422, 422]
    assert refused[1].json()["error"]["what"] == "“-1” for beta: At least 0."
    assert program.post("runs", several).json()["error"]["what"] == "These settings describe several runs."
    stopped = program.post("preflight", {"spec": spec, "set": {"grid": "num_generations: 8, 7"}}).json()
    assert (stopped["launchable"], stopped["findings"][0]["field"]) == (False, "grid")
    assert Run.objects.count() == 5


def test_a_run_is_read_with_its_status_and_sentence():
    run = a_run("sums")
    answer = Program(ApiScope.READ).get(f"runs/{run.pk}").json()
    assert (answer["name"], answer["status"], answer["owner"]) == ("sums", "queued", "olga")


def test_runs_are_listed_page_by_page_without_gaps():
    made = [a_run(f"run {number}").pk for number in range(5)]
    program, seen, cursor = Program(ApiScope.READ), [], ""
    while True:
        page = program.get("runs", limit=2, cursor=cursor).json()
        seen += [run["id"] for run in page["items"]]
        if not (cursor := page["next_cursor"]):
            break
    assert seen == made[::-1]


def test_a_list_is_filtered_as_on_its_page_and_an_unknown_filter_is_named():
    a_run("one"), a_run("two")
    program = Program(ApiScope.READ)
    assert [run["name"] for run in program.get("runs", q="two").json()["items"]] == ["two"]
    refused = program.get("runs", status="asleep")
    assert refused.status_code == 422
    assert refused.json()["error"]["where"] == "status"


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("chosen", [{}, {"use_lora": False, "learning_rate": 3e-7, "beta": 0.04, "top_k": 7}])
def test_a_spec_that_is_launched_again_makes_the_same_run(form, chosen):
    spec, program = a_spec(max_steps=7, **chosen), Program()
    text = program.get(f"runs/{spec['run_id']}/spec", format=form).content.decode()
    answer = program.post("runs", {"document": text})
    assert answer.status_code == 201, answer.json()
    copy = Run.objects.get(pk=answer.json()["run"]["id"])
    assert without_id(copy.spec) == without_id(spec)
    assert safe_yaml.load(text.encode()) == spec


def test_a_spec_that_a_form_would_write_otherwise_is_launched_as_it_is_written():
    spec = a_spec()
    spec["grpo"] = {"max_steps": 5, "warmup_steps": 10, "weight_decay": 0.0, "learning_rate": 1e-6}
    copy = Run.objects.get(pk=Program().post("runs", {"spec": spec}).json()["run"]["id"])
    assert json.dumps(without_id(copy.spec)) == json.dumps(without_id(spec))


def test_a_spec_keeps_the_revision_of_its_model():
    spec, program = a_spec(model="org/tiny"), Program()
    spec["model"]["revision"] = "v1.0"
    copy = Run.objects.get(pk=program.post("runs", {"spec": spec}).json()["run"]["id"])
    assert without_id(copy.spec) == without_id(spec)
    refused = program.post("runs", {"spec": spec, "set": {"model": "/models/tiny"}})
    assert (refused.status_code, refused.json()["error"]["where"]) == (422, "revision")


def test_a_key_launches_once_and_another_run_under_it_is_a_conflict():
    program, spec = Program(), a_spec()
    launch = {"headers": {"Idempotency-Key": "tonight"}}
    first, second = (program.post("runs", {"spec": spec}, **launch) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["run"]["id"] == second.json()["run"]["id"]
    assert program.post("runs", {"spec": spec, "name": "other"}, **launch).status_code == 409


def test_what_preflight_stops_is_not_launched_and_the_findings_say_why():
    spec = a_spec()
    answer = Program().post("runs", {"spec": spec, "set": {"num_generations": 1}})
    assert answer.status_code == 422
    assert answer.json()["error"]["where"] == "num_generations"
    assert not answer.json()["launchable"]


def test_a_document_of_another_run_is_not_half_taken():
    spec = {**a_spec(), "surprise": 1}
    program = Program()
    assert program.post("runs", {"spec": spec}).json()["error"]["where"] == "surprise"
    assert program.post("preflight", {"spec": spec}).json()["launchable"] is False
    assert program.post("runs", {"spec": spec, "accept_notes": True}).status_code == 201


def test_a_run_is_stopped_and_the_event_names_who_did_it():
    attempt = an_attempt()
    program = Program()
    answer = program.post(f"runs/{attempt.run_id}/stop", {"mode": "now"})
    assert answer.json()["changed"]
    assert answer.json()["run"]["stop_requested"] == "now"
    assert RunEvent.objects.get(kind="requested").actor == program.user.username


def test_tags_and_notes_are_changed_and_an_active_run_is_not_archived():
    run = an_attempt().run
    program = Program()
    changed = program.patch(f"runs/{run.pk}", {"add_tags": ["Baseline"], "notes": "good"}).json()
    assert (changed["tags"], changed["notes"]) == (["baseline"], "good")
    assert program.patch(f"runs/{run.pk}", {"archived": True}).status_code == 409


def test_of_a_change_of_a_run_that_is_refused_nothing_is_done():
    run, program = an_attempt().run, Program()
    events = RunEvent.objects.filter(run=run).count()
    preset = program.get("presets").json()["items"][-1]["id"]
    change = {"name": "other", "add_tags": ["x"], "notes": "y", "preset": preset, "archived": True}
    assert program.patch(f"runs/{run.pk}", change).status_code == 409
    now = Run.objects.get(pk=run.pk)
    assert (now.name, now.tags, now.notes, now.preset) == (run.name, [], "", None)
    assert RunEvent.objects.filter(run=run).count() == events


def test_a_run_that_has_not_ended_is_not_resumed():
    run = an_attempt().run
    answer = Program().post(f"runs/{run.pk}/resume", {})
    assert answer.status_code == 409
    assert "still running" in answer.json()["error"]["what"]


@pytest.mark.parametrize("body", ["{", '{"mode": "later"}', '{"mode": NaN}', '{"mode": "\\ud800"}', "[]"])
def test_a_body_that_will_not_do_is_refused_in_the_products_words(body):
    run = an_attempt().run
    answer = Program().client.post(f"/api/v1/runs/{run.pk}/stop", body, "application/json")
    assert answer.status_code in (400, 422)
    assert set(json.loads(answer.content)["error"]) == {"what", "where", "fix"}


def test_profiles_are_ranked_for_a_run():
    ranked = Program().post("preflight/profiles", {"spec": a_spec()}).json()["items"]
    assert {"name": "CPU", "fits": True} in [{"name": each["name"], "fits": each["fits"]} for each in ranked]
    assert all("profile" in each["set"] for each in ranked)


def test_preflight_asks_a_host_about_the_model_once_and_has_its_answer(sent):
    spec, program = a_spec(), Program()
    assert [program.post("preflight", {"spec": spec}).json()["asks"] for _ in range(2)] == [True, True]
    (asked,) = ModelInspection.objects.all()
    assert sent.of(Task.INSPECT_MODEL) == [[asked.pk, "/models/tiny", ""]]
    asked.answer, asked.answered_at = {"ok": False, "error": "There is no such folder."}, timezone.now()
    asked.save()
    answer = program.post("preflight", {"spec": spec}).json()
    assert (answer["asks"], answer["launchable"]) == (False, False)
    assert answer["findings"][0]["cause"] == "There is no such folder."
