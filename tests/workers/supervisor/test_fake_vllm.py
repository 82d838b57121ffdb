"""The fake vLLM behaves as the real one where the supervisor's work is hard: its processes, its end, its routes."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.fakes.running_vllm import RunningVllm

pytestmark = pytest.mark.processes

Start = Callable[..., RunningVllm]


@pytest.fixture
def fake() -> Iterator[Start]:
    with contextlib.ExitStack() as running:
        yield lambda *args, **env: running.enter_context(RunningVllm(*args, **env))


def test_the_engine_hides_from_every_search_but_the_process_tree(fake: Start) -> None:
    engine = fake(A_COOKIE="1").ready().children[0]
    assert engine.cmdline()[0] == "VLLM::EngineCore"
    assert engine.environ() == {}
    assert os.getsid(engine.pid) == engine.pid


def test_sigterm_ends_the_whole_tree(fake: Start) -> None:
    server = fake().ready()
    server.front.terminate()
    assert server.front.wait(10) == 0
    assert not server.children[0].is_running()


def test_sigkill_of_the_front_leaves_the_engine_alive(fake: Start) -> None:
    server = fake().ready()
    server.front.kill()
    server.front.wait(10)
    assert server.children[0].is_running()


def test_the_engine_takes_the_front_with_it(fake: Start) -> None:
    server = fake().ready()
    server.children[0].kill()
    assert server.front.wait(10) == 1


@pytest.mark.parametrize("fault", ["dies_on_start", "dies_after:0"])
def test_a_server_that_dies_exits_with_1(fake: Start, fault: str) -> None:
    assert fake(FAKE_VLLM=fault).front.wait(10) == 1


@pytest.mark.parametrize("fault", ["never_ready", "slow:30"])
def test_a_server_that_is_not_ready_refuses_connections_and_can_be_stopped(fake: Start, fault: str) -> None:
    server = fake(FAKE_VLLM=fault)
    assert server.get("/health") is None
    server.front.terminate()
    assert server.front.wait(10) == 0


def test_sigterm_can_be_ignored_by_both_processes(fake: Start) -> None:
    server = fake(FAKE_VLLM="ignores_sigterm").ready()
    server.front.terminate()
    server.children[0].terminate()
    assert server.get("/health") == 200


def test_an_orphan_is_nobodys_descendant_and_outlives_all(fake: Start) -> None:
    server = fake(FAKE_VLLM="leaves_orphan").ready()
    orphans = [p for p in psutil.process_iter() if _is_worker_of(p, server.children[0])]
    server.children += orphans
    server.front.terminate()
    server.front.wait(10)
    assert [p.is_running() for p in orphans] == [True]


def _is_worker_of(process: psutil.Process, engine: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        named = (process.cmdline() or [""])[0] == "VLLM::Worker"
        return named and 0 <= process.create_time() - engine.create_time() < 1
    return False


def test_a_port_in_use_is_said_and_exits_with_1(fake: Start) -> None:
    first = fake().ready()
    second = fake("--port", str(first.port))
    assert second.front.wait(10) == 1
    assert "Address already in use" in second.log()


def test_an_unknown_flag_is_refused(fake: Start) -> None:
    assert fake("--max-lora-ranks", "8").front.wait(10) == 2


def test_completions_come_prompt_by_prompt_with_ids_and_logprobs(fake: Start) -> None:
    wanted = {"logprobs": 0, "return_token_ids": True, "return_tokens_as_token_ids": True, "max_tokens": 3}
    answer = fake().ready().post("/v1/completions", model="r-1", prompt=[[5], [6]], n=2, **wanted)
    choices = answer.json()["choices"]
    assert [c["token_ids"] for c in choices] == [[5] * 3, [5] * 3, [6] * 3, [6] * 3]
    assert [c["prompt_token_ids"] for c in choices[::2]] == [[5], [6]]
    assert choices[0]["logprobs"]["tokens"] == ["token_id:5"] * 3


def test_a_model_that_was_not_loaded_is_not_found(fake: Start) -> None:
    assert fake().ready().post("/v1/completions", model="policy-v1", prompt=[[5]]).status_code == 404


def test_adapters_are_listed_while_loaded(fake: Start, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 8}))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    server = fake("--enable-lora", VLLM_ALLOW_RUNTIME_LORA_UPDATING="1").ready()
    load = {"lora_name": "policy-v1", "lora_path": str(tmp_path)}
    assert [server.post("/v1/load_lora_adapter", **load).status_code for _ in range(2)] == [200, 400]
    assert server.models() == ["r-1", "policy-v1"]
    assert [server.post("/v1/unload_lora_adapter", **load).status_code for _ in range(2)] == [200, 404]


def test_adapter_and_development_routes_are_shut_by_default(fake: Start) -> None:
    server = fake("--enable-lora").ready()
    assert server.post("/v1/load_lora_adapter", lora_name="a", lora_path="/a").status_code == 404
    assert server.get("/server_info") == 404


def test_another_servers_name_is_in_the_list_of_models(fake: Start) -> None:
    assert fake(FAKE_VLLM="wrong_name").ready().models() == ["another-attempt"]


def test_health_can_be_well_while_completions_hang(fake: Start) -> None:
    server = fake(FAKE_VLLM="health_but_hangs").ready()
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/v1/completions", json={}, timeout=0.3)
    assert server.get("/health") == 200
