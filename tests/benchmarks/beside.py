"""What rewards beside generation give a training whose judge has to be waited for.

The same training twice, with the real trainer on the CPU, once with and once without: a vLLM server that completes the
groups of a batch one after the other (a fake one, as there is no GPU), and a judge on loopback that takes its time for
each answer, a few at once. Both trainings must have the same rewards, samples and metrics.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.fakes.running_vllm import RunningVllm
from tests.trainer import builders
from workers.contract.reports.waterfall import REWARD, SERVER, Span, overlap, read
from workers.contract.run.hardware import Rollout, ServerSpec, WeightSync
from workers.contract.run.spec import LoraSpec, RewardSpec
from workers.contract.wire.names import EventKind, FileName

GROUP = 4
LORA = ("--enable-lora", "--max-lora-rank", "8", "--max-loras", "3", "--logprobs-mode", "processed_logprobs")
TIMED = ("time/", "step_time", "memory/")


class Judge(ThreadingHTTPServer):
    """Scores by the text's length, after `seconds`."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.seconds = seconds
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return json.dumps({"address": f"http://127.0.0.1:{self.server_port}/v1", "key": ""})


class _Answering(BaseHTTPRequestHandler):
    server: Judge

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(self.server.seconds)
        # What stands between the lines that the request fences it with: their marker is another each time.
        text = body["messages"][-1]["content"].split("]\n", 1)[1].rsplit("\n[", 1)[0]
        said = {"choices": [{"message": {"role": "assistant", "content": f"Score: {sum(map(ord, text)) % 11}"}}]}
        answer = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: object) -> None:
        """Nothing."""


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="bench beside", description=__doc__)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--group-s", type=float, default=0.5, help="seconds that the server takes for a group")
    parser.add_argument("--judge-s", type=float, default=0.5, help="seconds that the judge takes for an answer")
    parser.add_argument("--at-once", type=int, default=4, help="requests that the judge is asked at once")
    parser.add_argument("--model", type=Path, help="the demo's model, if there is one already")
    options = parser.parse_args(argv or [])
    python = os.environ.get("GRPO_TRAINER_PYTHON") or str(ROOT / ".venv-train" / "bin" / "python")
    with tempfile.TemporaryDirectory(prefix="gt-") as folder:
        work = Path(folder)
        model = options.model or _model(python, work / "model")
        without, with_ = (_train(python, work / name, model, options, on=name == "on") for name in ("off", "on"))
    return {
        "steps": options.steps,
        "groups": options.groups,
        "generation_s": round(options.groups * options.group_s, 3),
        "judge_s": round(options.groups * GROUP * options.judge_s / options.at_once, 3),
        "step_s_without": _median(without),
        "step_s_with": _median(with_),
        "speedup": round(_median(without) / _median(with_), 3),
        "overlap_s_without": _overlap(without),
        "overlap_s_with": _overlap(with_),
        "same_samples": without["samples"] == with_["samples"],
        "same_metrics": without["metrics"] == with_["metrics"],
    }


def _train(python: str, folder: Path, model: Path, options: argparse.Namespace, *, on: bool) -> dict[str, Any]:
    judge = Judge(options.judge_s)
    allowed = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "FAKE_VLLM_LIFETIME": "1800"}
    with judge, RunningVllm(*LORA, name="r1-1", FAKE_VLLM=f"one_by_one:{options.group_s:g}", **allowed) as server:
        params = {"endpoint": "JUDGE", "model": "a-model", "rubric": "{completion}", "concurrency": options.at_once}
        builders.attempt_folder(
            folder,
            model=model,
            grpo={
                "per_device_train_batch_size": options.groups * GROUP,
                "num_generations": GROUP,
                "max_steps": options.steps,
                "max_completion_length": 8,
                "beta": 0.0,
                "save_strategy": "no",
            },
            hardware={"rollout": Rollout.SERVER, "server": ServerSpec(weight_sync=WeightSync.LORA)},
            placement={"ports": [server.ready().port]},
            rewards=(RewardSpec("judge", "judge", params=params), RewardSpec("variety", "unique_chars")),
            run={"lora": LoraSpec(r=8, alpha=16), "rewards_beside": on},
        )
        command = [python, "-m", "workers.trainer", str(folder)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GRPO_SECRET_JUDGE": judge.endpoint}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
        judge.shutdown()
    if done.returncode:
        raise RuntimeError(f"the training failed:\n{done.stderr[-3000:]}")
    lines = builders.lines(folder / FileName.METRICS)
    samples = builders.lines(folder / FileName.SAMPLES)
    return {
        "step_s": [line["data"]["step_time"] for line in lines if "step_time" in line["data"]][1:],
        "spans": [read(line["data"]) for line in lines if line["kind"] == EventKind.SPANS][1:],
        "metrics": [
            (line["step"], {name: value for name, value in line["data"].items() if not name.startswith(TIMED)})
            for line in lines
            if "loss" in line["data"]
        ],
        "samples": [{name: value for name, value in sample.items() if name != "t"} for sample in samples],
    }


def _median(training: dict[str, Any]) -> float:
    return round(statistics.median(training["step_s"]), 3)


def _overlap(training: dict[str, Any]) -> float:
    """Median seconds of a step in which the judge works while the server generates."""

    def of(spans: list[Span]) -> float:
        judging = [span for span in spans if span.lane == f"{REWARD}judge"]
        return overlap(judging, [span for span in spans if span.lane.startswith(SERVER)])

    return round(statistics.median(map(of, training["spans"])), 3)


def _model(python: str, folder: Path) -> Path:
    subprocess.run([python, "-m", "workers.trainer.tiny", str(folder)], check=True, cwd=ROOT, capture_output=True)
    return folder


if __name__ == "__main__":
    print(json.dumps(main()))
