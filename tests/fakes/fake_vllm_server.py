"""The fake vLLM's HTTP front: the routes that TRL, a supervisor and a person call, in vLLM's own shapes."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fake_vllm_engine import Engine, Faults, log

VERSION = "0.31.0"


class State:
    """What the routes share."""

    def __init__(self, options: argparse.Namespace, faults: Faults, engine: Engine) -> None:
        self.options = options
        self.faults = faults
        self.engine = engine
        self.name = "another-attempt" if faults.has("wrong_name") else (options.served_model_name or [options.model])[0]
        self.adapters: dict[str, str] = {}
        self.dev_mode = os.environ.get("VLLM_SERVER_DEV_MODE") == "1"
        self.adapter_routes = options.enable_lora and os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING") in (
            "1",
            "True",
        )
        self.prompt_tokens = self.generation_tokens = self.running = self.finished = self.asked = 0
        self.lock = threading.Lock()
        self.turn = threading.Lock()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    state: State

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's own asks the resolver for this host's name


def bind(options: argparse.Namespace) -> Server:
    """Take the port at once but don't listen: before the engine is ready a connection is refused."""
    server = Server((options.host or "0.0.0.0", options.port), Routes, bind_and_activate=False)
    try:
        server.server_bind()
    except OSError as error:
        log(str(error), "ERROR")
        sys.exit(1)
    return server


class Refused(Exception):
    """A request that vLLM answers with an error object."""

    def __init__(self, code: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.code, self.kind = code, kind


class Routes(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(
            {
                "/health": self.health,
                "/v1/models": self.models,
                "/version": self.version,
                "/metrics": self.metrics,
                "/server_info": self.server_info,
                "/get_world_size": self.world_size,
            }
        )

    def do_POST(self) -> None:
        self._answer(
            {
                "/v1/completions": self.completions,
                "/v1/load_lora_adapter": self.load_adapter,
                "/v1/unload_lora_adapter": self.unload_adapter,
                "/reset_prefix_cache": self.reset_prefix_cache,
            }
        )

    @property
    def state(self) -> State:
        return self.server.state

    def _answer(self, routes: dict[str, Callable[[], Any]]) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            route = routes.get(urlsplit(self.path).path)
            if route is None:
                raise Refused(404, "NotFoundError", "Not Found")
            self._send(200, route())
        except Refused as refusal:
            error = {"message": str(refusal), "type": refusal.kind, "param": None, "code": refusal.code}
            self._send(refusal.code, {"error": error})

    def _send(self, code: int, answer: Any) -> None:
        text = isinstance(answer, str)
        if isinstance(answer, list):
            text, answer = True, "".join(f"data: {part}\n\n" for part in answer)
        body = answer.encode() if text else b"" if answer is None else json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8" if text else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body)

    def log_message(self, form: str, *args: Any) -> None:
        if not self.state.options.disable_uvicorn_access_log:
            print(f"INFO:     {self.client_address[0]}:{self.client_address[1]} - {form % args}", flush=True)

    # - GET -

    def health(self) -> None:
        return None

    def version(self) -> dict[str, str]:
        return {"version": VERSION}

    def models(self) -> dict[str, Any]:
        options, state = self.state.options, self.state
        card = {"object": "model", "created": int(time.time()), "owned_by": "vllm"}
        base = {"id": state.name, **card, "root": options.model, "parent": None, "max_model_len": options.max_model_len}
        adapters = [{"id": n, **card, "root": path, "parent": state.name} for n, path in list(state.adapters.items())]
        return {"object": "list", "data": [base, *adapters]}

    def metrics(self) -> str:
        state = self.state
        values = [
            ("gauge", "vllm:num_requests_running", state.running),
            ("gauge", "vllm:num_requests_waiting", 0),
            ("gauge", "vllm:kv_cache_usage_perc", min(1.0, state.running / 100)),
            ("counter", "vllm:prompt_tokens_total", state.prompt_tokens),
            ("counter", "vllm:generation_tokens_total", state.generation_tokens),
            ("counter", "vllm:prefix_cache_queries_total", state.prompt_tokens),
            ("counter", "vllm:prefix_cache_hits_total", state.prompt_tokens // 2),
            ("counter", "vllm:num_preemptions_total", 0),
            ("counter", "vllm:request_success_total", state.finished),
        ]
        lines = []
        for kind, name, value in values:
            extra = ',finished_reason="stop"' if name == "vllm:request_success_total" else ""
            lines += [f"# HELP {name} {name}.", f"# TYPE {name.removesuffix('_total')} {kind}"]
            lines += [f'{name}{{engine="0",model_name="{state.name}"{extra}}} {float(value)}']
        return "\n".join(lines) + "\n"

    def server_info(self) -> dict[str, Any]:
        self._development_only()
        options = self.state.options
        model = {"model": options.model, "max_model_len": options.max_model_len, "dtype": options.dtype}
        model |= {"logprobs_mode": options.logprobs_mode, "max_logprobs": options.max_logprobs}
        parallel = {"tensor_parallel_size": options.tensor_parallel_size}
        transfer = options.weight_transfer_config
        config = {"model_config": model, "parallel_config": parallel, "weight_transfer_config": transfer}
        return {"vllm_config": config, "vllm_env": {}, "system_env": {}}

    def world_size(self) -> dict[str, int]:
        self._development_only()
        return {"world_size": self.state.options.tensor_parallel_size * (self.state.options.data_parallel_size or 1)}

    # - POST -

    def reset_prefix_cache(self) -> dict[str, bool]:
        self._development_only()
        return {"success": True}

    def load_adapter(self) -> str:
        wanted = self._adapter_request()
        name, path = wanted.get("lora_name"), wanted.get("lora_path")
        if not name or not path:
            raise Refused(400, "InvalidUserInput", "Both 'lora_name' and 'lora_path' must be provided.")
        if name in self.state.adapters:
            raise Refused(400, "InvalidUserInput", f"The lora adapter '{name}' has already been loaded.")
        self._check_adapter(Path(path))
        if problem := self.state.engine.ask(op="load", name=name, path=path).get("error"):
            raise Refused(500, "InternalServerError", problem)
        self.state.adapters[name] = path
        log(f"Loaded new LoRA adapter: name '{name}', path '{path}'")
        return f"Success: LoRA adapter '{name}' added successfully."

    def unload_adapter(self) -> str:
        name = self._adapter_request().get("lora_name")
        if name not in self.state.adapters:
            raise Refused(404, "NotFoundError", f"The lora adapter '{name}' cannot be found.")
        self.state.engine.ask(op="unload", name=name)
        del self.state.adapters[name]
        log(f"Removed LoRA adapter: name '{name}'")
        return f"Success: LoRA adapter '{name}' removed successfully."

    def completions(self) -> dict[str, Any]:
        if self.state.faults.has("health_but_hangs"):
            with self.state.lock:
                self.state.running += 1  # as vLLM counts a request whose engine never comes back to it
            threading.Event().wait()
        request = self._json()
        prompts = self._prompts(request)
        self._check_completion(request, prompts)
        n = request.get("n") or 1
        names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "max_tokens")
        options = {name: request[name] for name in names if request.get(name) is not None}
        state, started = self.state, time.monotonic()
        scores = bool(request.get("echo"))
        with state.lock:
            state.running += 1
            state.asked += not scores
            hangs = not scores and state.faults.seconds("hangs_at") == state.asked
        wanted = "scores" if scores else "completions"
        log(f"Asked for {len(prompts) * n} {wanted} of '{request['model']}'")
        if hangs:
            threading.Event().wait()
        is_base = request["model"] == state.name or state.faults.has("ignores_adapters")
        adapter = None if is_base else request["model"]
        answer = state.engine.ask(op="generate", prompts=prompts, n=n, adapter=adapter, **{"max_tokens": 16, **options})
        if "error" in answer:
            raise Refused(500, "InternalServerError", answer["error"])
        sequences = answer["sequences"]
        for _ in prompts if state.faults.has("one_by_one") and not scores else ():
            with state.turn:
                time.sleep(state.faults.seconds("one_by_one"))
        if not scores:
            time.sleep(max(0.0, started + state.faults.seconds("generates_in") - time.monotonic()))
        with state.lock:
            state.running -= 1
            state.finished += len(sequences)
            state.prompt_tokens += sum(map(len, prompts))
            state.generation_tokens += sum(len(s["tokens"]) for s in sequences)
        log(f"{'Scored' if scores else 'Generated'} {len(sequences)} sequences with model '{request['model']}'")
        choices = [choice(request, i, prompts[i // n], sequence) for i, sequence in enumerate(sequences)]
        if scores:
            _add_prompts(choices, state.engine.ask(op="score", prompts=prompts, adapter=adapter)["scored"])
        head = {"id": f"cmpl-{state.finished}", "object": "text_completion", "created": int(time.time())}
        head["model"] = request["model"]
        return _events(head, choices) if request.get("stream") else {**head, "choices": choices}

    def _json(self) -> dict[str, Any]:
        try:
            request = json.loads(self.body)
        except ValueError as error:
            raise Refused(400, "BadRequestError", f"JSON decode error: {error}") from None
        if not isinstance(request, dict):
            raise Refused(400, "BadRequestError", "Input should be a valid dictionary")
        return request

    def _adapter_request(self) -> dict[str, Any]:
        if not self.state.adapter_routes:
            raise Refused(404, "NotFoundError", "Not Found")
        return self._json()

    def _development_only(self) -> None:
        if not self.state.dev_mode:
            raise Refused(404, "NotFoundError", "Not Found")

    def _check_adapter(self, path: Path) -> None:
        try:
            config = json.loads((path / "adapter_config.json").read_text())
        except OSError:
            raise Refused(
                404, "NotFoundError", f"Loading lora {path.name} failed: No adapter found for {path}"
            ) from None
        if config.get("r", 0) > self.state.options.max_lora_rank:
            raise Refused(400, "BadRequestError", f"LoRA rank {config['r']} is greater than max_lora_rank")
        if config.get("modules_to_save") or config.get("use_dora") or config.get("bias", "none") != "none":
            raise Refused(400, "BadRequestError", "vLLM only supports plain LoRA: modules_to_save, DoRA, bias are not")
        if not (path / "adapter_model.safetensors").is_file():
            raise Refused(404, "NotFoundError", f"{path} doesn't contain tensors")

    def _prompts(self, request: dict[str, Any]) -> list[list[int]]:
        prompt = request.get("prompt")
        many = prompt if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else [prompt]
        prompts = [[ord(char) % 100 for char in p] if isinstance(p, str) else p for p in many]
        if not all(isinstance(p, list) and all(isinstance(token, int) for token in p) for p in prompts):
            raise Refused(400, "BadRequestError", "prompt must be text or token ids")
        return prompts

    def _check_completion(self, request: dict[str, Any], prompts: list[list[int]]) -> None:
        state = self.state
        if request.get("model") not in (state.name, *state.adapters):
            raise Refused(404, "NotFoundError", f"The model `{request.get('model')}` does not exist.")
        limit = state.options.max_logprobs
        if limit >= 0 and (request.get("logprobs") or 0) > limit:
            raise Refused(400, "BadRequestError", f"Requested sample logprobs of more than {limit}")
        longest, most = max(map(len, prompts), default=0), state.options.max_model_len
        if most and longest + (request.get("max_tokens") or 16) > most:
            raise Refused(400, "BadRequestError", f"This model's maximum context length is {most} tokens.")


def _events(head: dict[str, Any], choices: list[dict[str, Any]]) -> list[str]:
    """The parts of a streamed answer; the real server sends them one by one."""
    parts: list[dict[str, Any]] = []
    for each in choices:
        for character in each["text"]:
            parts.append({"choices": [{"index": each["index"], "text": character, "finish_reason": None}]})
        parts.append({"choices": [{"index": each["index"], "text": "", "finish_reason": each["finish_reason"]}]})
    tokens = sum(each["tokens_made"] for each in choices)
    parts.append({"choices": [], "usage": {"completion_tokens": tokens}})
    return [*(json.dumps({**head, **part}) for part in parts), "[DONE]"]


def _add_prompts(choices: list[dict[str, Any]], scored: list[dict[str, Any]]) -> None:
    for each, prompt in zip(choices, scored, strict=True):
        found = each["logprobs"]
        for name, part in (("tokens", "tokens"), ("token_logprobs", "logprobs"), ("top_logprobs", "top")):
            found[name] = [*prompt[part], *found[name]]
        each["text"] = "".join(prompt["tokens"]) + each["text"]


def choice(request: dict[str, Any], index: int, prompt: list[int], sequence: dict[str, Any]) -> dict[str, Any]:
    """One element of `choices`, with what the request's flags ask for."""
    tokens, values = sequence["tokens"], sequence["logprobs"]
    logprobs = None
    if request.get("logprobs") is not None:
        named = [f"token_id:{t}" if request.get("return_tokens_as_token_ids") else chr(32 + t % 95) for t in tokens]
        top = [{name: value} for name, value in zip(named, values, strict=True)]
        offsets = list(range(len(named)))
        logprobs = {"tokens": named, "token_logprobs": values, "top_logprobs": top, "text_offset": offsets}
    ids = bool(request.get("return_token_ids"))
    return {
        "index": index,
        "text": sequence.get("text", "".join(chr(32 + token % 95) for token in tokens)),
        "logprobs": logprobs,
        "finish_reason": "stop" if sequence["ended"] else "length",
        "stop_reason": None,
        "tokens_made": len(tokens),
        "token_ids": tokens if ids else None,
        "prompt_token_ids": prompt if ids else None,
        "prompt_logprobs": None,
    }
