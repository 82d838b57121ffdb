"""Agents train a tiny model through the gateway: the OpenAI package on one side, real TRL on the other."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.running_vllm import RunningVllm
from tests.trainer import agent, builders
from tests.trainer.preloaded import Preloaded, Process
from tests.waiting import wait_until
from tests.workers.supervisor.servers import free_port
from workers.contract.run import gateway
from workers.contract.run.episodes import EpisodeSpec, GatewaySpec
from workers.contract.run.hardware import Rollout, ServerSpec, WeightSync
from workers.contract.run.spec import LoraSpec, RewardSpec
from workers.contract.wire.names import FileName

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

KEY = "sk-test"
GRPO: dict[str, Any] = {"max_steps": 2, "max_completion_length": 60, "save_strategy": "no"}
AGENTS = 4
LORA = ("--enable-lora", "--max-lora-rank", "8", "--max-loras", "3", "--logprobs-mode", "processed_logprobs")


def attempt(folder: Path, model: Path, *, ports: tuple[int, ...] = (), **options: Any) -> Path:
    settings = GatewaySpec(**options.pop("settings", {}))
    rows = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in builders.rows()]
    run = {"episodes": EpisodeSpec(gateway=settings), **options.pop("run", {})}
    return builders.attempt_folder(
        folder,
        model=model,
        dataset=rows,
        rewards=(RewardSpec("agent", "environment_reward"),),
        grpo={**GRPO, **options.pop("grpo", {})},
        placement={"ports": (*ports, free_port())},
        run=run,
        **options,
    )


@contextlib.contextmanager
def training(preloaded: Preloaded, folder: Path, *, port: int = -1) -> Iterator[tuple[Process, httpx.Client]]:
    """The trainer, and a client of its gateway once that listens."""
    env = {"OMP_NUM_THREADS": "1", gateway.KEY_DIGEST: hashlib.sha256(KEY.encode()).hexdigest()}
    process = preloaded.start("-m", "workers.trainer", folder, env=env)
    url = f"http://127.0.0.1:{builders.spec_of(folder).placement.ports[port]}"
    client = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=60)
    try:
        wait_until(lambda: process.poll() is not None or listens(client))
        yield process, client
    finally:
        client.close()
        process.kill()
        process.communicate()


def listens(client: httpx.Client) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return client.get("/health").status_code == httpx.codes.OK
    return False


def until_the_end(url: str) -> int:
    with contextlib.suppress(httpx.TransportError):  # the trainer is gone
        return agent.work(url, KEY)
    return 0


def ended(process: Process, log: Path | None = None) -> None:
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err[-3000:] + (log.read_text()[-3000:] if log else "")


@pytest.mark.parametrize("processes", [1, 2])
def test_agents_with_the_openai_package_train_a_model(
    preloaded: Preloaded, tiny_model: Path, tmp_path: Path, processes: int
) -> None:
    profile = {"processes": processes, "strategy": "ddp"} if processes > 1 else {}
    grpo = {"per_device_train_batch_size": 8 // processes}
    folder = attempt(tmp_path / "attempt", tiny_model, hardware=profile, grpo=grpo)
    with training(preloaded, folder) as (process, client), ThreadPoolExecutor(AGENTS) as agents:
        for _ in range(AGENTS):
            agents.submit(until_the_end, str(client.base_url))
        ended(process)
    logs = builders.logs(folder)
    assert sorted(logs) == [1, 2]
    for log in logs.values():
        assert log[gateway.REQUESTS] == 16  # two turns in each of eight sessions
        assert (log[gateway.GONE], log[gateway.STALENESS], log[gateway.BRANCHES_DROPPED]) == (0, 0, 0)
        assert log["episodes/turns/mean"] == 2
        assert log["rewards/agent/mean"] > 0
    first, *_ = builders.lines(folder / FileName.SAMPLES)
    assert [turn["role"] for turn in first["completions"][0]["turns"]][:3] == ["assistant", "user", "assistant"]
    assert KEY not in (folder / FileName.SPEC).read_text()


def test_agents_train_on_a_servers_answers(preloaded: Preloaded, tiny_model: Path, tmp_path: Path) -> None:
    env = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "FAKE_VLLM_LIFETIME": "280", "FAKE_VLLM_ENGINE": "torch"}
    with RunningVllm(
        *LORA, preloaded=preloaded, model=str(tiny_model), name="r1-1", OMP_NUM_THREADS="1", **env
    ) as vllm:
        vllm.ready()
        server = ServerSpec(count=1, weight_sync=WeightSync.LORA, request_timeout_s=60)
        run = {"lora": LoraSpec(r=8, alpha=16)}
        hardware = {"rollout": Rollout.SERVER, "server": server}
        grpo = {"learning_rate": 1e-2, "max_steps": 3}
        folder = attempt(tmp_path / "attempt", tiny_model, ports=(vllm.port,), run=run, hardware=hardware, grpo=grpo)
        with training(preloaded, folder) as (process, client), ThreadPoolExecutor(AGENTS) as agents:
            for _ in range(AGENTS):
                agents.submit(until_the_end, str(client.base_url))
            ended(process)
    logs = builders.logs(folder)
    assert [logs[step]["sampling/sampling_logp_difference/max"] < 1e-4 for step in (1, 2, 3)] == [True] * 3
    assert logs[3][gateway.STALENESS] == 0


def work_one_step(client: httpx.Client, sessions: int) -> None:
    for _ in range(sessions):
        task = client.post("/v1/sessions", json={"wait_s": 60}).json()
        path = httpx.URL(task["base_url"]).path
        client.post(f"{path}/chat/completions", json={"messages": task["messages"]}).raise_for_status()
        client.post(f"/s/{task['id']}/end", json={"reward": 1.0}).raise_for_status()


def waits_alone(folder: Path, seconds: float = 1.0) -> bool:
    figures = json.loads((folder / FileName.ACTIVITY.format(rank=0)).read_text()).get("figures", {})
    return bool(figures.get(gateway.QUIET_S, 0.0) >= seconds)


def stopped_at(folder: Path, process: Process) -> int:
    """Stop a trainer that waits; the step whose checkpoint is there."""
    wait_until(lambda: waits_alone(folder))
    (folder / FileName.STOP).touch()
    ended(process)
    trained = [line for line in builders.lines(folder / FileName.METRICS) if line["kind"] == "trained"]
    assert [line["data"]["how"] for line in trained] == ["stopped"]
    (checkpoint,) = [line["data"] for line in builders.lines(folder / FileName.METRICS) if line["kind"] == "checkpoint"]
    assert (folder / checkpoint["path"] / "model.safetensors").is_file()
    return int(checkpoint["step"])


@pytest.mark.parametrize("processes", [1, 2])
def test_a_stop_while_nobody_takes_tasks_saves_the_last_step(
    preloaded: Preloaded, tiny_model: Path, tmp_path: Path, processes: int
) -> None:
    profile = {"processes": processes, "strategy": "ddp"} if processes > 1 else {}
    grpo = {"per_device_train_batch_size": 8 // processes, "max_steps": 9}
    folder = attempt(tmp_path / "attempt", tiny_model, hardware=profile, grpo=grpo)
    with training(preloaded, folder) as (process, client):
        work_one_step(client, 8)
        wait_until(lambda: builders.logs(folder))
        assert stopped_at(folder, process) == 1
    assert sorted(builders.logs(folder)) == [1]


CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calc",
        "description": "Works out an expression.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    },
}


def call_until_the_end(client: httpx.Client) -> list[str]:
    """The names of the tools that the model called."""
    names: list[str] = []
    while (task := client.post("/v1/sessions", json={"wait_s": 5})).status_code in (200, 204):
        if task.status_code == 204:
            continue
        path = httpx.URL(task.json()["base_url"]).path
        body = {"messages": task.json()["messages"], "tools": [CALCULATOR], "temperature": 0.1}
        answer = client.post(f"{path}/chat/completions", json=body)
        assert answer.headers["X-Ignored"] == "temperature"
        message = answer.json()["choices"][0]["message"]
        for call in message.get("tool_calls", ()):
            names.append(call["function"]["name"])
            body["messages"] = [*body["messages"], message]
            body["messages"].append({"role": "tool", "tool_call_id": call["id"], "content": "42"})
            client.post(f"{path}/chat/completions", json=body).raise_for_status()
            break
        client.post(f"/s/{task.json()['id']}/end", json={"reward": len(names) % 2}).raise_for_status()
        assert client.post(f"/s/{task.json()['id']}/end").status_code == 409
    return names


def test_an_agents_tools_are_shown_and_their_calls_read(
    preloaded: Preloaded, calling_model: Path, tmp_path: Path
) -> None:
    grpo = {"max_steps": 1, "max_completion_length": 160, "temperature": 0.01}
    folder = attempt(tmp_path / "attempt", calling_model, grpo=grpo)
    with training(preloaded, folder) as (process, client):
        with contextlib.suppress(httpx.TransportError):
            call_until_the_end(client)
        ended(process)
    roles = [turn["role"] for turn in builders.lines(folder / FileName.SAMPLES)[0]["completions"][0]["turns"]]
    assert roles[:3] == ["assistant", "tool", "assistant"]
    assert builders.logs(folder)[1][gateway.BRANCHES_DROPPED] == 0
