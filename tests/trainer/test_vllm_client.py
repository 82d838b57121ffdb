"""The trainer's HTTP client of a vLLM server: adapters by version, completions, and every way in which it fails."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.fakes.running_vllm import RunningVllm
from workers.trainer.rollouts.vllm_client import AdapterClient, ServerError

pytestmark = pytest.mark.processes

LORA = ("--enable-lora", "--max-loras", "3")
ALLOWED = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
SAMPLING = {"n": 2, "max_tokens": 3, "temperature": 1.0}


@pytest.fixture
def server() -> Iterator[RunningVllm]:
    with RunningVllm(*LORA, **ALLOWED) as running:
        yield running.ready()


@pytest.fixture
def answering() -> Iterator[Callable[[str], AdapterClient]]:
    """A client of something that answers every POST with a given body and 200."""
    servers: list[HTTPServer] = []

    def answer(body: str) -> AdapterClient:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None: ...

        servers.append(HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return client(f"http://127.0.0.1:{servers[-1].server_port}")

    yield answer
    for one in servers:
        one.shutdown()
        one.server_close()


def client(url: str, name: str = "r-1", timeout: float = 5.0) -> AdapterClient:
    return AdapterClient(url, name, request_timeout_s=timeout)


def adapter(folder: Path, rank: int = 8) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank}))
    (folder / "adapter_model.safetensors").write_bytes(b"")
    return folder


def test_completions_are_token_ids_with_a_log_probability_each(server: RunningVllm) -> None:
    completions = client(server.url).complete([[5], [6]], SAMPLING)
    assert [ids for ids, _ in completions] == [[5] * 3, [5] * 3, [6] * 3, [6] * 3]
    assert all(values == [-4.60517] * 3 for _, values in completions)


def test_each_version_replaces_the_one_before(server: RunningVllm, tmp_path: Path) -> None:
    policy = client(server.url)
    replaced = [policy.use_adapter(f"policy-v{n}", adapter(tmp_path / f"policy-v{n}")) for n in (1, 2, 3)]
    assert replaced == [None, "policy-v1", "policy-v2"]
    assert server.models() == ["r-1", "policy-v3"]
    policy.complete([[5]], SAMPLING)
    assert "with model 'policy-v3'" in server.log()


def test_adapters_of_an_earlier_trainer_leave_the_server(server: RunningVllm, tmp_path: Path) -> None:
    client(server.url).use_adapter("policy-v1", adapter(tmp_path / "policy-v1"))
    client(server.url).check()
    assert server.models() == ["r-1"]


def test_a_server_of_another_attempt_is_refused(server: RunningVllm) -> None:
    with pytest.raises(ServerError, match=r"Another vLLM server is responding at .*: it serves r-1"):
        client(server.url, name="r-2").check()


def test_a_server_without_development_routes_is_taken_to_be_started_by_us(server: RunningVllm) -> None:
    assert client(server.url).get_server_info()["model_config"]["logprobs_mode"] == "processed_logprobs"


def test_a_server_that_tells_its_logprobs_mode_is_believed() -> None:
    with RunningVllm(VLLM_SERVER_DEV_MODE="1") as server:
        info = client(server.ready().url).get_server_info()
    assert info["model_config"]["logprobs_mode"] == "raw_logprobs"


def test_a_refused_adapter_is_named_with_the_servers_reason(server: RunningVllm, tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"refused /v1/load_lora_adapter for policy-v1 \(400\): LoRA rank 64 is"):
        client(server.url).use_adapter("policy-v1", adapter(tmp_path / "policy-v1", rank=64))


def test_a_refused_request_is_named_with_the_servers_reason() -> None:
    with RunningVllm("--max-model-len", "4") as server, pytest.raises(ServerError, match="maximum context length is 4"):
        client(server.ready().url).complete([[1, 2]], SAMPLING)


def test_a_server_that_is_gone_is_an_error_at_once(server: RunningVllm) -> None:
    server.front.kill()
    server.front.wait()
    with pytest.raises(ServerError, match=r"The vLLM server at 127.0.0.1:\d+ is gone: /v1/completions failed\. The"):
        client(server.url).complete([[5]], SAMPLING)


def test_a_server_that_hangs_is_an_error_after_the_time_out() -> None:
    with (
        RunningVllm(FAKE_VLLM="health_but_hangs") as server,
        pytest.raises(ServerError, match=r"didn't respond to /v1/completions within 0\.2 s"),
    ):
        client(server.ready().url, timeout=0.2).complete([[5]], SAMPLING)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("<html>proxy</html>", "invalid JSON: <html>proxy</html>"),
        ("{}", r"unexpected response to /v1/completions: KeyError\('choices'\)"),
        ('{"choices": [{"index": 0, "token_ids": [1], "logprobs": null}]}', "unexpected response"),
        ('{"choices": []}', "with 0 of 2 completions"),
        ('{"choices": [{"index": 0, "token_ids": [1, 2], "logprobs": {"token_logprobs": [-1]}}]}', "with 1 of 2"),
    ],
)
def test_an_answer_of_the_wrong_shape_is_an_error(
    answering: Callable[[str], AdapterClient], body: str, complaint: str
) -> None:
    with pytest.raises(ServerError, match=complaint):
        answering(body).complete([[5]], SAMPLING)


def test_choices_are_taken_by_index_and_unknown_probabilities_are_none(
    answering: Callable[[str], AdapterClient],
) -> None:
    second = {"index": 1, "token_ids": [2], "logprobs": {"token_logprobs": [float("nan")]}}
    first = {"index": 0, "token_ids": [1], "logprobs": {"token_logprobs": [-0.5]}}
    answer = answering(json.dumps({"choices": [second, first]}))
    assert answer.complete([[5]], SAMPLING) == [([1], [-0.5]), ([2], [None])]
