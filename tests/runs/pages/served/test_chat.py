"""The chat with a checkpoint: who may, what is asked, how turns travel, and how answers come back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from runs.engine.checkpoints import Checkpoint
from runs.engine.models import Attempt, Lease, Run
from runs.engine.scheduling import dispatching, gpu_queue
from runs.engine.served import conversation, starting
from runs.engine.served.models import Answer, Served, Turn
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from runs.intake.host_api.ingest import accept
from tests.controlplane.people import operator, viewer
from tests.runs.builders import FREE, a_run
from tests.runs.pages.served.builders import a_checkpoint, piece
from workers.contract.reports.chat import MAX_CHAT_LENGTH
from workers.contract.run.jobs import SERVE
from workers.contract.run.spec import servers_of
from workers.contract.stack import commands
from workers.contract.stack.commands import Programs
from workers.contract.wire.names import EndReason

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


@pytest.fixture
def checkpoint() -> Checkpoint:
    return a_checkpoint()


@pytest.fixture
def address(checkpoint: Checkpoint) -> str:
    return f"/models/{checkpoint.event.pk}/chat/"


def asked(client: Client, address: str, text: str = "What is 2 + 3?", **changes: Any) -> Any:
    form = {"text": text, "temperature": 0.7, "max_tokens": 32, "seed": 1, **changes}
    return client.post(f"{address}ask", form)


def running() -> Attempt:
    """The served model's attempt, with its supervisor."""
    attempt = Run.objects.get(kind=SERVE).latest()
    move(attempt, RunStatus.STARTING, reason="test", actor="test", facts={"first_seq": 1})
    move(attempt, RunStatus.RUNNING, reason="test", actor="test")
    return attempt


def told(attempt: Attempt, after: int = 0) -> Any:
    news = conversation.news(attempt, after)
    assert news is not None
    return news


def test_a_double_click_starts_one_and_the_chat_is_shown_at_once(address: str) -> None:
    client = operator()
    for _ in range(2):
        answer = client.post(address)
        assert (answer.status_code, answer["Location"]) == (302, address)
    served = Run.objects.get(kind=SERVE)
    assert served.spec["job"]["idle_minutes"] == 15
    assert "queued" in client.get(address).content.decode()


def test_with_gpus_a_free_one_is_proposed_and_a_place_is_chosen_before_anything_is_sent() -> None:
    checkpoint = a_checkpoint()
    host = checkpoint.event.attempt.host
    assert host is not None
    host.inventory |= {"gpus": [{"index": 0, "name": "H200", "memory_mib": 143_771, "used_mib": 0}]}
    host.save()
    client, address = operator(), f"/models/{checkpoint.event.pk}/chat/"
    page = client.get(address).content.decode()
    assert '<option value="gpu" selected>' in page
    assert 'disabled aria-describedby="ask-send-why"' in page
    client.post(address, {"place": "gpu"})
    state = client.get(f"{address}state").content.decode()
    assert 'hx-swap-oob="true"' in state
    assert "ask-send-why" not in state
    Lease.objects.create(host=host, attempt=Run.objects.get(kind=SERVE).latest(), resource="gpu:0")
    assert starting.usual_engine(host) == "cpu"


def test_a_turn_reaches_the_supervisor_once_for_both_models(address: str) -> None:
    assert asked(operator(), address, system="Be brief.")["HX-Trigger"] == "asked"
    attempt = running()
    [turn] = told(attempt).turns
    assert [ask.model for ask in turn.asks] == ["trained", "base"]
    assert [message["role"] for message in turn.asks[0].messages] == ["system", "user"]
    assert (turn.sampling.seed, turn.sampling.max_tokens) == (1, 32)
    assert told(attempt).present
    assert told(attempt, after=1).turns == ()


def test_pieces_of_an_answer_are_put_together_once(address: str) -> None:
    asked(operator(), address)
    attempt = running()
    first = [piece(1, 1, "2 + "), piece(2, 1, "3 = <b>\0")]
    accept(attempt, first)
    accept(attempt, [*first, piece(3, 1, "5"), piece(4, 1, "", why="length")])
    answer = Answer.objects.get(model="trained")
    assert (answer.text, answer.finish, answer.tokens) == ("2 + 3 = <b>\ufffd5", "length", 3)
    assert not attempt.run.events.filter(kind="answer").exists()
    page = operator().get(address).content.decode()
    assert "2 + 3 = &lt;b&gt;" in page
    assert "truncated at the token limit" in page
    assert 'hx-trigger="every 250ms"' in page  # the base still answers


def test_each_model_goes_on_from_its_own_answers(address: str) -> None:
    asked(operator(), address)
    attempt = running()
    assert asked(operator(), address, "And 1 more?").status_code == 422  # one is being answered
    accept(attempt, [piece(1, 1, "5", why="stop"), piece(2, 1, "6", model="base", why="stop")])
    asked(operator(), address, "And 1 more?")
    [turn] = told(attempt, after=1).turns
    said = {ask.model: [message["content"] for message in ask.messages] for ask in turn.asks}
    assert said == {
        "trained": ["What is 2 + 3?", "5", "And 1 more?"],
        "base": ["What is 2 + 3?", "6", "And 1 more?"],
    }


def test_a_message_is_answered_anew_with_the_next_seed_and_a_new_chat_forgets(address: str) -> None:
    asked(operator(), address)
    attempt = running()
    accept(attempt, [piece(1, 1, "5", why="stop"), piece(2, 1, "6", model="base", why="stop")])
    operator().post(f"{address}ask", {"again": Turn.objects.get().pk})
    [turn] = told(attempt, after=1).turns
    assert (turn.sampling.seed, len(turn.asks[0].messages)) == (2, 1)
    accept(attempt, [piece(3, 2, "5", why="stop"), piece(4, 2, "6", model="base", why="stop")])
    asked(operator(), address, "Hello", new="on")
    assert len(told(attempt, after=2).turns[0].asks[0].messages) == 1


def test_a_chat_that_is_too_long_is_refused_before_it_is_stored(address: str) -> None:
    answer = asked(operator(), address, "x" * (MAX_CHAT_LENGTH + 1))
    assert answer.status_code == 422
    assert "100,001 characters" in answer.content.decode()
    half = "x" * (MAX_CHAT_LENGTH - 10)
    assert "the limit is 100,000" in asked(operator(), address, half, system="y" * 11).content.decode()
    assert not Turn.objects.exists()
    assert asked(operator(), address, half).status_code == 200


@pytest.mark.parametrize("wrong", [{"text": ""}, {"temperature": "hot"}, {"max_tokens": 0}, {"seed": -1}, {"row": "x"}])
def test_what_can_t_be_asked_is_refused(address: str, wrong: dict[str, Any]) -> None:
    assert asked(operator(), address, **{"text": "Hello", **wrong}).status_code == 422
    assert not Turn.objects.exists()


def test_a_stop_ends_the_answers_and_leaves_the_model(address: str) -> None:
    asked(operator(), address)
    attempt = running()
    operator().post(f"{address}stop", {"what": "answer"})
    assert told(attempt).stopped == 1
    attempt.refresh_from_db()
    assert not attempt.stop_mode
    operator().post(f"{address}stop")
    attempt.refresh_from_db()
    assert attempt.stop_mode == "now"


def test_a_page_that_is_closed_ends_the_answers_unless_another_is_open(address: str) -> None:
    asked(operator(), address)
    attempt, client = running(), viewer()
    client.get(f"{address}state", {"leaving": 1})
    until = Served.objects.get().present_until
    assert until is not None
    assert until < timezone.now() + timedelta(seconds=conversation.LEAVING_S + 1)
    client.get(f"{address}state")  # another tab
    assert told(attempt).present
    Served.objects.update(present_until=timezone.now() - timedelta(seconds=1))
    assert not told(attempt).present


def test_the_history_outlives_the_model_which_a_message_starts_again(address: str, checkpoint: Checkpoint) -> None:
    asked(operator(), address)
    attempt = running()
    accept(attempt, [piece(1, 1, "5", why="stop")])
    move(attempt, RunStatus.SUCCEEDED, reason=EndReason.COMPLETED, actor="test", facts={"receipt": FREE})
    page = operator().get(address).content.decode()
    assert "The model stopped before this answer was complete." in page
    assert "every 250ms" not in page
    assert asked(operator(), address, "And now?").status_code == 200
    assert starting.of_checkpoint(checkpoint).count() == 2
    again = starting.live_run(checkpoint)
    assert again is not None
    assert again.pk != attempt.run_id
    [turn] = told(again.latest()).turns
    assert [message["content"] for message in turn.asks[0].messages] == ["What is 2 + 3?", "5", "And now?"]


def test_a_viewer_reads_along(address: str) -> None:
    asked(operator(), address)
    page = viewer().get(address).content.decode()
    assert "What is 2 + 3?" in page
    assert "Only operators can send messages" in page
    assert "Send" not in page
    assert asked(viewer(), address).status_code == 403


def test_new_turns_reach_another_tab(address: str) -> None:
    asked(operator(), address)
    client = viewer()
    answer = client.get(f"{address}state", {"after": 0}).content.decode()
    assert "What is 2 + 3?" in answer
    answer = client.get(f"{address}state", {"after": Turn.objects.get().pk}).content.decode()
    assert "What is 2 + 3?" not in answer


def test_answers_are_scored_by_the_run_s_rewards(address: str) -> None:
    asked(operator(), address)
    attempt = running()
    text = "<think>2+3</think><answer>5</answer>"
    accept(attempt, [piece(1, 1, text, why="stop"), piece(2, 1, "6", model="base", why="stop")])
    turn = Turn.objects.get()
    page = operator().post(f"{address}turns/{turn.pk}/scores").content.decode()
    trained, base = (answer.scores[0] for answer in turn.answers.all())
    assert (trained["name"], trained["value"], base["value"]) == ("format", 1.0, 0.0)
    assert "format" in page
    assert "hx-trigger" not in page.partition("</header>")[0]


def test_on_a_host_with_gpus_a_person_chooses_where_the_model_runs(checkpoint: Checkpoint, address: str) -> None:
    host = checkpoint.event.attempt.host
    assert host is not None
    host.inventory |= {"gpus": [{"index": 0, "used_mib": 0}], "versions": {"vllm": "0.31"}, "runs_dir": "/runs"}
    host.save()
    assert "Load the model first" in asked(operator(), address).content.decode()
    operator().post(address, {"place": "moon"})
    assert not Run.objects.filter(kind=SERVE).exists()
    operator().post(address, {"place": "vllm"})
    served = Run.objects.get(kind=SERVE)
    need = gpu_queue.need_of(served)
    assert (need.gpus, need.server_gpus, need.ports) == (0, 1, 1)
    assert starting.models_of(served) == ["trained"]  # all weights: vLLM has no base beside them
    assert asked(operator(), address).status_code == 200
    dispatching.dispatch_ready()
    spec = dispatching.attempt_spec(served.latest())
    argv = commands.server_argv(spec, servers_of(spec)[0], Programs())
    assert argv[4] == f"/runs/{checkpoint.folder}"
    assert "--enable-lora" not in argv


def test_a_run_that_waits_for_its_place_is_told_to_the_served_model(address: str) -> None:
    asked(operator(), address)
    attempt = running()
    assert not told(attempt).wanted
    waiting = a_run("waits").latest()
    Attempt.objects.filter(pk=waiting.pk).update(
        waits_on=attempt.run, waits_how="held", waits_for="waits for CPU slot 0"
    )
    assert told(attempt).wanted
    Served.objects.update(key_sha256="0" * 64)
    assert not told(attempt).wanted  # others may use it


def test_supervisors_of_other_runs_get_nothing_of_a_chat(checkpoint: Checkpoint) -> None:
    assert conversation.news(checkpoint.event.attempt, 0) is None
