"""A served model as a process: the turns of the chat and HTTP requests, answered by an adapter and its base."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.running_vllm import RunningVllm
from tests.trainer import builders
from tests.trainer.conftest import Start, starting
from tests.trainer.preloaded import Preloaded, Process
from tests.waiting import wait_until
from tests.workers.supervisor.servers import free_port
from workers.contract.reports.chat import KEY_DIGEST, Ask, ChatNews, ChatTurn, Sampling
from workers.contract.run.hardware import Rollout, ServerSpec, WeightSync
from workers.contract.run.spec import LoraSpec
from workers.contract.wire.documents import to_json
from workers.contract.wire.names import FileName

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

CHECKPOINT = "r0/1/checkpoints/checkpoint-2"
LORA = LoraSpec(r=8, alpha=16)
KEY = "a-key-of-the-test"
QUESTION = ({"role": "user", "content": "What is 2 + 3?"},)
ONE_TO_TWO = Sampling(temperature=0.0, max_tokens=12)


@pytest.fixture(scope="module")
def runs_dir(preloaded: Preloaded, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a checkpoint of a short training."""
    runs = tmp_path_factory.mktemp("runs")
    grpo = {"max_steps": 2, "learning_rate": 3e-2}
    folder = builders.attempt_folder(runs / "r0/1", model=tiny_model, grpo=grpo, run={"lora": LORA})
    with starting(preloaded) as start:
        trainer = start("-m", "workers.trainer", folder)
        _, stderr = trainer.communicate(timeout=240)
        assert trainer.returncode == 0, stderr
    return runs


class Served:
    def __init__(self, folder: Path, start: Start) -> None:
        self.folder = folder
        self.process: Process = start("-m", "workers.trainer", folder)

    def news(self, *turns: ChatTurn, stopped: int = 0, present: bool = True, wanted: bool = False) -> None:
        with (self.folder / FileName.CHAT).open("a") as file:
            file.write(to_json(ChatNews(turns, stopped, present, wanted)) + "\n")

    def lines(self, kind: str) -> list[dict[str, Any]]:
        lines = builders.lines(self.folder / FileName.METRICS)
        return [line["data"] for line in lines if line["kind"] == kind]

    def answer(self, turn: int, model: str) -> tuple[str, dict[str, Any]]:
        """Its whole text and its end, once it has ended."""

        def pieces() -> list[dict[str, Any]]:
            return [one for one in self.lines("answer") if (one["turn"], one["model"]) == (turn, model)]

        def ended() -> bool:
            done = any(one["end"] for one in pieces())
            assert done or self.process.poll() is None, self.process.communicate()
            return done

        wait_until(ended, self.why)
        assert [one["piece"] for one in pieces()] == list(range(1, len(pieces()) + 1))
        return "".join(one["text"] for one in pieces()), pieces()[-1]["end"]

    def why(self) -> str:
        return str(builders.lines(self.folder / FileName.METRICS)[-5:])

    def wait_for(self, kind: str) -> dict[str, Any]:
        wait_until(lambda: bool(self.lines(kind)), self.why)
        return self.lines(kind)[-1]


def a_job(folder: Path, model: Path, *, job: dict[str, Any] | None = None, **changes: Any) -> Path:
    run = {"kind": "serve", "lora": LORA, "start_from": CHECKPOINT, "job": job or {}}
    return builders.attempt_folder(folder, model=model, run=run, **changes)


def turn(number: int, *models: str, sampling: Sampling = ONE_TO_TWO, **ask: Any) -> ChatTurn:
    asked = ask or {"messages": QUESTION}
    return ChatTurn(number, tuple(Ask(model, **asked) for model in models), sampling)


@pytest.fixture
def served(runs_dir: Path, tiny_model: Path, tmp_path: Path, start: Start) -> Served:
    return Served(a_job(runs_dir / tmp_path.name / "1", tiny_model), start)


def test_both_models_answer_a_turn_and_the_same_seed_gives_the_same_answer(served: Served) -> None:
    warm = replace(ONE_TO_TWO, temperature=1.0, seed=3)
    served.news(turn(1, "trained", "base"), turn(2, "base", sampling=warm), turn(3, "base", sampling=warm))
    trained, end = served.answer(1, "trained")
    base, _ = served.answer(1, "base")
    assert trained != base
    assert 0 < end["tokens"] <= 12
    assert end["prompt_tokens"] > 10
    assert served.answer(2, "base")[0] == served.answer(3, "base")[0] != base
    served.news(turn(4, "base", plain="Compute 1 + 1."), turn(5, "base", plain="x" * 3000))
    assert served.answer(4, "base")[1]["prompt_tokens"] < end["prompt_tokens"]
    assert "3,000 tokens, but this model's limit is 2,048" in served.answer(5, "base")[1]["error"]


LONG = Sampling(temperature=2.0, max_tokens=2000, seed=1)


def test_an_answer_ends_at_once_when_it_is_stopped_or_nobody_waits_for_it(served: Served) -> None:
    served.news(turn(1, "trained", sampling=LONG))
    served.wait_for("answer")
    served.news(stopped=1)
    text, end = served.answer(1, "trained")
    assert end["why"] == "stopped"
    assert text
    served.news(turn(2, "trained", "base", sampling=LONG), stopped=1)
    wait_until(lambda: any(line["turn"] == 2 for line in served.lines("answer")), served.why)
    served.news(stopped=1, present=False)
    assert [served.answer(2, model)[1]["why"] for model in ("trained", "base")] == ["left", "left"]


def test_a_model_that_nobody_uses_ends_by_itself(
    runs_dir: Path, tiny_model: Path, tmp_path: Path, start: Start
) -> None:
    served = Served(a_job(runs_dir / tmp_path.name / "1", tiny_model, job={"idle_minutes": 0.01}), start)
    _, err = served.process.communicate(timeout=120)
    assert served.process.returncode == 0, err
    assert served.wait_for("trained") == {"how": "done"}
    assert "without a message" in served.wait_for("result")["text"]


def test_a_model_that_nobody_uses_gives_way_after_its_answers(
    runs_dir: Path, tiny_model: Path, tmp_path: Path, start: Start
) -> None:
    served = Served(a_job(runs_dir / tmp_path.name / "1", tiny_model, job={"gives_way_s": 1.0}), start)
    served.news(turn(1, "trained", "base"), wanted=True)
    assert served.answer(1, "base")[1]["tokens"]
    served.process.communicate(timeout=60)
    assert served.process.returncode == 0
    assert "another run needed" in served.wait_for("result")["text"]


@pytest.fixture
def with_key(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The settings of a job that listens."""
    monkeypatch.setenv(KEY_DIGEST, hashlib.sha256(KEY.encode()).hexdigest())
    return {"address": "127.0.0.1"}


@pytest.fixture
def listening(runs_dir: Path, tiny_model: Path, tmp_path: Path, start: Start, with_key: dict[str, Any]) -> Served:
    place = {"ports": (free_port(),)}
    served = Served(a_job(runs_dir / tmp_path.name / "1", tiny_model, job=with_key, placement=place), start)
    served.wait_for("result")
    return served


def port_of(served: Served) -> int:
    return builders.spec_of(served.folder).placement.ports[-1]


def ask(served: Served, path: str, body: dict[str, Any] | None = None, *, key: str = KEY) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    answer = httpx.request(
        "GET" if body is None else "POST", f"http://127.0.0.1:{port_of(served)}{path}", json=body, headers=headers
    )
    return answer.status_code, answer.text


def test_requests_are_answered_with_the_key_alone(listening: Served) -> None:
    assert ask(listening, "/health", key="")[0] == 200
    assert [ask(listening, "/v1/models", key=key)[0] for key in ("", "wrong", KEY)] == [401, 401, 200]
    chat = {"model": "base", "messages": QUESTION, "temperature": 0, "max_tokens": 12}
    status, text = ask(listening, "/v1/chat/completions", chat)
    assert status == 200, text
    answer = json.loads(text)
    said = answer["choices"][0]["message"]["content"]
    assert said
    assert answer["usage"]["completion_tokens"] <= 12
    _, streamed = ask(listening, "/v1/chat/completions", {**chat, "stream": True})
    events = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events) == said
    assert streamed.endswith("data: [DONE]\n\n")
    listening.news(turn(1, "base"))
    assert listening.answer(1, "base")[0] == said  # the chat and requests share the model
    assert listening.wait_for("train")["serve/requests"] >= 1


CALCULATE = {"type": "function", "function": {"name": "calculate", "parameters": {"type": "object", "properties": {}}}}
CALLED = """
import json
from workers.contract.reports.chat import Finish
from workers.trainer import openai_shapes, tiny
from workers.trainer.jobs import generation
from workers.trainer.jobs.generation import GenerationError, GenerationResult
call = {"id": "a", "type": "function", "function": {"name": "calculate", "arguments": '{"of": "1 + 1"}'}}
messages = [{"role": "user", "content": "Compute."}, {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "2"}]
given = {"messages": messages, "tools": [TOOL]}
request = openai_shapes.read_model_request(given, ["base"], chat=True)
tokenizer = tiny.make_tokenizer()
shown = tokenizer.decode(generation.prompt_ids(tokenizer, request.prompts[0]))
assert "calculate" in shown and '{"of": "1 + 1"}' in shown, shown
text = 'So: <tool_call>{"name": "calculate", "arguments": {"of": "2"}}</tool_call><tool_call>{</tool_call>'
[choice] = request.response([(text, GenerationResult(Finish.STOP, 3, 3))])["choices"]
assert choice["finish_reason"] == "tool_calls"
assert choice["message"]["content"] == "So: <tool_call>{</tool_call>"
assert choice["message"]["tool_calls"][0]["function"] == {"name": "calculate", "arguments": '{"of": "2"}'}
tokenizer.chat_template = "{{ messages }}"
try:
    generation.prompt_ids(tokenizer, request.prompts[0])
except GenerationError as error:
    assert "can't render tools" in str(error)
else:
    raise AssertionError("tools were left out")
""".replace("TOOL", str(CALCULATE))


def test_calls_are_shown_to_the_model_and_read_from_what_it_writes(preloaded: Preloaded) -> None:
    preloaded.run("-c", CALLED)


def test_a_request_may_offer_tools(listening: Served) -> None:
    chat = {"model": "base", "messages": QUESTION, "temperature": 0, "max_tokens": 4}
    plain, offered = (
        json.loads(ask(listening, "/v1/chat/completions", chat | more)[1]) for more in ({}, {"tools": [CALCULATE]})
    )
    assert offered["usage"]["prompt_tokens"] > plain["usage"]["prompt_tokens"]
    for wrong in ({"tools": [3]}, {"tools": [CALCULATE], "stream": True}):
        assert ask(listening, "/v1/chat/completions", chat | wrong)[0] == 400


def test_bad_requests_are_refused_in_words(listening: Served) -> None:
    plain = {"model": "base", "prompt": "Compute 1 + 1.", "max_tokens": 4}
    assert ask(listening, "/v1/completions", plain)[0] == 200
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"model": "other"}, "Available: trained, base"),
        ({"max_tokens": 0}, "max_tokens must be"),
        ({"temperature": "hot"}, "temperature must be"),
        ({"n": 2}, "n can't be 2"),
        ({"prompt": []}, "list of at most 32"),
        ({"prompt": ["a", [1, -1]]}, "must be a string or a list of tokens"),
        ({"prompt": ["a", "b"], "stream": True}, "Only one prompt can be streamed"),
        ({"prompt": [10**9]}, "There is no token 1000000000"),
        ({"echo": True}, "only together"),
        ({"echo": True, "logprobs": 6}, "logprobs must be a number from 0 to 5"),
        ({"echo": True, "logprobs": 1}, "max_tokens must be 0, or 1"),
        ({"prompt": "x" * 100_001}, "100,001 characters"),
        ({"prompt": "x" * 5_000}, "5,000 tokens"),
        ({"stop": [""]}, "stop must be"),
    ]
    for change, why in wrong:
        status, text = ask(listening, "/v1/completions", {**plain, **change})
        assert (status, why in text) == (400, True), text
    with socket.create_connection(("127.0.0.1", port_of(listening)), timeout=30) as large:
        large.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\n".encode())
        large.sendall(b"Content-Length: 1048577\r\n\r\n")
        assert b" 413 " in large.recv(100)  # the body is not waited for
    assert ask(listening, "/v1/other", plain)[0] == 404


def completions(served: Served, **body: Any) -> list[dict[str, Any]]:
    status, text = ask(served, "/v1/completions", {"temperature": 0, **body})
    assert status == 200, text
    choices: list[dict[str, Any]] = json.loads(text)["choices"]
    assert [each["index"] for each in choices] == list(range(len(choices)))
    return choices


PROMPTS = ["Compute 1 + 1.", "What is 2 + 3? Say it in words."]


def direct(preloaded: Preloaded, model: Path) -> list[dict[str, Any]]:
    """Of each prompt, by a forward pass of its own."""
    asked = json.dumps({"model": str(model), "prompts": PROMPTS})
    done: list[dict[str, Any]] = json.loads(preloaded.run("-m", "tests.trainer.forward_pass", stdin=asked).stdout)
    return done


def test_prompts_are_scored_as_by_a_forward_pass(listening: Served, preloaded: Preloaded, tiny_model: Path) -> None:
    expected = direct(preloaded, tiny_model)
    scoring = {"prompt": [each["ids"] for each in expected], "echo": True, "logprobs": 1}
    for choice, own in zip(completions(listening, model="base", max_tokens=1, **scoring), expected, strict=True):
        found = choice["logprobs"]
        assert found["token_logprobs"][0] is found["top_logprobs"][0] is None
        assert found["token_logprobs"][1:-1] == pytest.approx(own["logprobs"], abs=1e-4)
        assert [max(top.values()) for top in found["top_logprobs"][1:]] == pytest.approx(own["best"], abs=1e-4)
        assert found["token_logprobs"][-1] == max(found["top_logprobs"][-1].values())
        assert choice["text"] == "".join(found["tokens"])
    alone = completions(listening, model="base", max_tokens=0, **scoring | {"prompt": expected[1]["ids"]})
    assert alone[0]["logprobs"]["token_logprobs"][1:] == pytest.approx(expected[1]["logprobs"], abs=1e-4)
    trained = completions(listening, model="trained", max_tokens=0, **scoring)
    assert trained[1]["logprobs"]["token_logprobs"] != alone[0]["logprobs"]["token_logprobs"]


def test_tokens_are_answered_as_their_text(listening: Served, preloaded: Preloaded, tiny_model: Path) -> None:
    tokens = [each["ids"] for each in direct(preloaded, tiny_model)]
    options = {"model": "base", "max_tokens": 8}
    texts = [each["text"] for each in completions(listening, prompt=PROMPTS, **options)]
    assert [each["text"] for each in completions(listening, prompt=tokens, **options)] == texts
    assert completions(listening, prompt=tokens[1], **options)[0]["text"] == texts[1] != ""
    cut = [each["text"] for each in completions(listening, prompt=tokens, stop=texts[1][1], **options)]
    assert cut == [text.split(texts[1][1])[0] for text in texts]


@pytest.fixture
def server(preloaded: Preloaded, tiny_model: Path) -> Iterator[RunningVllm]:
    flags = ("--enable-lora", "--max-lora-rank", "8", "--max-loras", "3")
    env = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "FAKE_VLLM_LIFETIME": "280", "FAKE_VLLM_ENGINE": "torch"}
    with RunningVllm(*flags, preloaded=preloaded, model=str(tiny_model), name="r1-1", **env) as running:
        yield running.ready()


def test_a_vllm_server_answers_as_transformers_does(
    server: RunningVllm, runs_dir: Path, tiny_model: Path, tmp_path: Path, start: Start, with_key: dict[str, Any]
) -> None:
    spec = ServerSpec(weight_sync=WeightSync.LORA, request_timeout_s=60)
    hardware = {"rollout": Rollout.SERVER, "server": spec}
    ports, folder = (server.port, free_port()), runs_dir / tmp_path.name
    here = a_job(folder / "1", tiny_model, job=with_key, placement={"ports": (free_port(),)})
    there = a_job(folder / "2", tiny_model, job=with_key, hardware=hardware, placement={"ports": ports})
    both = [Served(folder, start) for folder in (here, there)]
    for served in both:
        served.news(turn(1, "trained", "base"))
    for model in ("trained", "base"):
        (text, end), (other, others_end) = (served.answer(1, model) for served in both)
        assert text == other
        assert (end["tokens"], end["why"]) == (others_end["tokens"], others_end["why"])
    assert both[1].wait_for("result")["facts"]["engine"] == "vLLM"
    assert_same_scores(*both)


def assert_same_scores(here: Served, there: Served) -> None:
    scoring = {"prompt": PROMPTS, "max_tokens": 0, "echo": True, "logprobs": 1}
    for model in ("trained", "base"):
        ours, theirs = (completions(served, model=model, **scoring) for served in (here, there))
        for one, other in zip(ours, theirs, strict=True):
            assert one["text"] == other["text"]
            pairs = zip(one["logprobs"]["token_logprobs"][1:], other["logprobs"]["token_logprobs"][1:], strict=True)
            assert all(a == pytest.approx(b, abs=1e-4) for a, b in pairs)
