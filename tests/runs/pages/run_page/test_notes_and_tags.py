"""The head of a run's page: what it is made of, tags, notes that two people write at once, and an unreadable spec."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from controlplane.platform.accounts.models import Role
from runs.engine.models import Run
from runs.engine.records import RunEvent
from runs.engine.states import RunStatus
from runs.intake.host_api.ingest import accept
from runs.pages.run_page import notes
from tests.controlplane.people import make_user, operator, signed_in, viewer
from tests.runs.builders import a_run, a_user, an_attempt, event, train

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


@pytest.fixture
def run() -> Run:
    return an_attempt().run


@pytest.fixture
def old() -> Run:
    """As another version of the control plane froze it."""
    run = an_attempt(RunStatus.SUCCEEDED).run
    Run.objects.filter(pk=run.pk).update(spec={"model": {"path": "/models/qwen"}, "of_tomorrow": {"a": 1}})
    return run


def page(client: Client, run: Run, part: str = "") -> str:
    answer = client.get(f"/runs/{run.pk}/{part}")
    assert answer.status_code == 200
    return answer.content.decode()


def edition(client: Client, run: Run) -> str:
    found = re.search('name="based_on" value="([0-9a-f]+)"', page(client, run, "notes?edit"))
    assert found
    return found[1]


def test_the_head_names_what_the_run_is_made_of(run: Run) -> None:
    accept(run.latest(), [train(1, reward=0.5, epoch=0.25)])
    shown = page(viewer(), run)
    for said in ("tiny", "sums v1", "tags", f"/hardware/profiles/{run.profile_id}/", "olga", "epoch 0.250"):
        assert said in shown
    assert 'data-unfold="commands"' in shown


def test_the_head_outlives_its_catalogue(run: Run) -> None:
    name = run.spec["hardware"]["profile"]
    Run.objects.filter(pk=run.pk).update(reward_version=None, profile=None)
    assert f"{name} <span" in page(viewer(), run)


def test_a_tag_is_put_on_and_taken_off_and_the_timeline_says_by_whom(run: Run) -> None:
    client = operator()
    assert "baseline" in client.post(f"/runs/{run.pk}/tags", {"add": "Baseline, math"}, headers=HTMX).content.decode()
    client.post(f"/runs/{run.pk}/tags", {"remove": "math"}, headers=HTMX)
    assert Run.objects.get(pk=run.pk).tags == ["baseline"]
    events = page(viewer(), run, "events/")
    assert "Tags: baseline, math." in events
    assert "operator" in events


def test_too_many_tags_are_said_and_none_is_lost(run: Run) -> None:
    answer = operator().post(f"/runs/{run.pk}/tags", {"add": ",".join(f"t{i:02}" for i in range(13))}, headers=HTMX)
    assert "t12: a run has at most 12 tags." in answer.content.decode()
    assert len(Run.objects.get(pk=run.pk).tags) == 12


def test_a_name_with_markup_is_text(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(name="<b>bold</b>")
    shown = page(viewer(), run)
    assert "<title>&lt;b&gt;bold&lt;/b&gt; · GRPO control plane</title>" in shown
    assert re.search(r"<h1[^>]*>.*&lt;b&gt;bold&lt;/b&gt;.*</h1>", shown, re.DOTALL)
    assert "<b>bold" not in shown


def test_notes_are_kept_as_text_with_who_wrote_them(run: Run) -> None:
    client = signed_in(user=make_user(Role.OPERATOR, name="ana"))
    sent = {"notes": "<b>high</b>\r\nKL ", "based_on": edition(client, run)}
    assert client.post(f"/runs/{run.pk}/notes", sent)["Location"] == f"/runs/{run.pk}/"
    assert Run.objects.get(pk=run.pk).notes == "<b>high</b>\nKL"
    shown = page(viewer(), run)
    assert "&lt;b&gt;high&lt;/b&gt;<br />" in shown
    assert "ana, <time" in shown


def test_notes_are_markdown_that_runs_and_loads_nothing(run: Run) -> None:
    text = (
        "# Why\n**β** is 0.04:\n\n- [the paper](https://example.org/a)\n- [run me](javascript:alert(1))\n\n"
        "<img src=x onerror=alert(1)> ![seen](https://example.org/spy.png)\n\n| a | b |\n|-|-|\n| 1 | 2 |\n"
    )
    text += "\nSee https://example.org/b_c."
    Run.objects.filter(pk=run.pk).update(notes=text)
    shown = page(viewer(), run, "notes")
    for said in ("<h3>Why</h3>", "<strong>β</strong> is 0.04:", "<td>1</td>", "[run me](javascript:alert(1))"):
        assert said in shown
    assert '<a href="https://example.org/a" rel="nofollow noopener noreferrer">the paper</a>' in shown
    bare = "https://example.org/b_c"
    assert f'See <a href="{bare}" rel="nofollow noopener noreferrer">{bare}</a>.' in shown
    assert "&lt;img src=x" in shown
    assert "<img" not in shown
    assert '<span class="cut">Why</span>' in shown


def test_of_two_who_write_notes_at_once_the_second_sees_what_the_first_wrote(run: Run) -> None:
    ana, bo = signed_in(user=make_user(Role.OPERATOR, name="ana")), operator()
    first, second = edition(ana, run), edition(bo, run)
    ana.post(f"/runs/{run.pk}/notes", {"notes": "of ana", "based_on": first}, headers=HTMX)
    answer = bo.post(f"/runs/{run.pk}/notes", {"notes": "of bo", "based_on": second}, headers=HTMX)
    assert answer.status_code == 422
    said = answer.content.decode()
    assert "ana has changed the notes since you opened them." in said
    assert "of ana" in said
    assert "of bo</textarea>" in said
    assert Run.objects.get(pk=run.pk).notes == "of ana"


def test_whoever_has_seen_the_others_notes_may_replace_them(run: Run) -> None:
    client = operator()
    client.post(f"/runs/{run.pk}/notes", {"notes": "first", "based_on": edition(client, run)}, headers=HTMX)
    answer = client.post(f"/runs/{run.pk}/notes", {"notes": "second", "based_on": notes.edition("first")}, headers=HTMX)
    assert answer.status_code == 200
    assert Run.objects.get(pk=run.pk).notes == "second"


def test_notes_sent_twice_make_one_event(run: Run) -> None:
    for _ in range(2):
        notes.write(run, "the same", notes.edition(""), a_user())
    assert RunEvent.objects.filter(kind=notes.NOTED_EVENT).count() == 1


def test_a_zero_byte_or_a_novel_are_cut_to_what_can_be_kept(run: Run) -> None:
    notes.write(run, "a\0b" + "x" * 20_000, notes.edition(""), a_user())
    assert Run.objects.get(pk=run.pk).notes.startswith("abx")
    assert len(Run.objects.get(pk=run.pk).notes) == notes.MAX_CHARS


def test_a_viewer_reads_tags_and_notes_and_changes_none(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(tags=["math"], notes="look here")
    client = viewer()
    assert "math" in page(client, run)
    shown = page(client, run, "notes?edit")
    assert "look here" in shown
    assert "<form" not in shown
    assert client.post(f"/runs/{run.pk}/tags", {"add": "x"}).status_code == 403
    assert client.post(f"/runs/{run.pk}/notes", {"notes": "x"}).status_code == 403


def test_no_part_of_a_run_breaks_on_a_spec_of_another_version(old: Run, subtests: pytest.Subtests) -> None:
    for part in ["", "head/", "series.json", "completions/", "logs/", "events/", "checkpoints/", "spec/", "notes"]:
        with subtests.test(part=part):
            for client in (viewer(), operator()):
                assert client.get(f"/runs/{old.pk}/{part}").status_code == 200


def test_an_unreadable_spec_is_said_and_shown_word_for_word(old: Run) -> None:
    assert "This version can’t read the spec" in page(viewer(), old)
    shown = page(viewer(), old, "spec/")
    assert "of_tomorrow" in shown
    assert "unknown field" in shown or "missing" in shown


def test_a_run_with_an_unreadable_spec_is_neither_cloned_nor_resumed(old: Run) -> None:
    accept(old.latest(), [event(1, "checkpoint", step=1, path="checkpoints/checkpoint-1")])
    shown = page(operator(), old)
    assert f"/runs/{old.pk}/clone/" not in shown
    assert "Resume" not in shown
    answer = operator().get(f"/runs/{old.pk}/clone/", follow=True)
    assert "can&#x27;t be cloned, because another version wrote its spec" in answer.content.decode()


def test_checkpoints_that_a_resume_passed_over_say_so() -> None:
    attempt = an_attempt()
    saved = [event(i, "checkpoint", step=i, path=f"checkpoints/checkpoint-{i}") for i in (1, 2)]
    accept(attempt, [*saved])
    RunEvent.objects.filter(kind="checkpoint", seq=1).update(step=1)
    RunEvent.objects.filter(kind="checkpoint", seq=2).update(step=2)
    an_attempt_after(attempt.run, resume_step=1)
    assert page(viewer(), attempt.run, "checkpoints/").count("obsolete") == 1


def an_attempt_after(run: Run, resume_step: int) -> None:
    run.attempts.update(status=RunStatus.STOPPED, reason="stopped_by_user")
    now = run.created_at
    run.attempts.create(
        id=f"{run.pk}-2", number=2, status=RunStatus.RUNNING, resume_step=resume_step, started_at=now, first_seq=100
    )


def test_names_with_markup_stay_text_in_the_head() -> None:
    run = an_attempt(run=a_run("<i>x</i>")).run
    Run.objects.filter(pk=run.pk).update(tags=["<img>"], spec={**run.spec, "model": {"path": "<script>"}})
    shown = page(operator(), run, "head/")
    assert "<img>" not in shown
    assert "<script>" not in shown
