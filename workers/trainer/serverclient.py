"""Completions from a vLLM server that gets the policy as a LoRA adapter, saved under a new name for each version.

TRL streams whole weights to a server over NCCL, which takes a GPU on both sides and vLLM's development routes. A LoRA
run needs neither: an adapter of some megabytes, loaded over HTTP. A new name each time, because vLLM goes on
answering from its prefix cache when the files under an old one change.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import importlib.util
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list, gather_object
from trl.trainer import grpo_trainer

from workers.contract import AttemptSpec, Rollout, ServerSpec, WeightSync
from workers.trainer.spec import SpecError, TrainerError

ADAPTERS = "adapters"
"""In the attempt's folder; holds the adapter that the server uses now."""
EXIT_SERVER = 5
"""The vLLM server has failed the trainer; the last line on stderr says how."""
CONNECT_TIMEOUT_S = 10.0
"""For requests that the server answers at once."""
LOAD_TIMEOUT_S = 120.0


class ServerError(TrainerError):
    """The vLLM server doesn't do its part."""

    exit_code = EXIT_SERVER


@contextlib.contextmanager
def rollouts(spec: AttemptSpec, folder: Path) -> Iterator[None]:
    """A GRPOTrainer that is built inside generates where the spec says.

    TRL makes its generation backend in its constructor, by a name of its module: that name is the one place where
    another backend can be handed in without importing vllm, which a trainer that only speaks HTTP doesn't need.
    """
    server = spec.run.hardware.server
    if spec.run.hardware.rollout is not Rollout.SERVER or server is None:
        yield
        return
    if server.weight_sync is WeightSync.NCCL:
        if importlib.util.find_spec("vllm") is None:
            raise SpecError("Weights go to the server over NCCL, and vllm is not installed beside the trainer for it.")
        yield
        return
    if spec.run.lora is None:
        raise SpecError("The server gets the policy as a LoRA adapter, but the run trains no LoRA.")
    theirs = grpo_trainer.VLLMGeneration
    grpo_trainer.VLLMGeneration = functools.partial(
        AdapterGeneration, folder=folder / ADAPTERS, served_name=spec.attempt_id, server=server
    )
    try:
        yield
    finally:
        grpo_trainer.VLLMGeneration = theirs


class AdapterGeneration:
    """Stands where TRL's VLLMGeneration stands: sync_weights before a generation, generate, and a vllm_client."""

    def __init__(
        self,
        *,
        folder: Path,
        served_name: str,
        server: ServerSpec,
        model: Any,
        accelerator: Any,
        server_base_url: str,
        **settings: Any,
    ) -> None:
        """`settings` are the sampling arguments that TRL gives, and its NCCL and colocate ones, which don't apply."""
        self._model = model
        self._accelerator = accelerator
        self._settings = settings
        self._folder = folder
        self._version = 0
        self.vllm_client = AdapterClient(server_base_url, served_name, request_timeout_s=server.request_timeout_s)
        if accelerator.is_main_process:
            self.vllm_client.check()
            shutil.rmtree(folder, ignore_errors=True)  # of a trainer that was started on this folder before
        accelerator.wait_for_everyone()

    def sync_weights(self) -> None:
        """Give the server the policy as it is now."""
        self._version += 1
        if self._accelerator.is_main_process:
            path = self._folder / f"policy-v{self._version}"
            self._model.save_pretrained(str(path), selected_adapters=["default"], save_embedding_layers=False)
            replaced = self.vllm_client.use_adapter(path.name, path)
            if replaced is not None:
                shutil.rmtree(self._folder / replaced)
        self._accelerator.wait_for_everyone()

    def generate(
        self, prompts: list[list[int]], images: Any, num_generations: int, profiler: Any = None
    ) -> tuple[list[list[int]], list[list[int]], list[list[list[float | None]]], None]:
        """(prompt ids, completion ids, log probabilities of the sampled tokens), one for each of this rank's prompts.

        `prompts` has each prompt num_generations times over; the server gets each once. Rank 0 asks for all ranks.
        """
        if images is not None:
            raise SpecError("Prompts with images can't be sent to the server.")
        everyones = gather_object(prompts)
        answer: list[Any] = [None]
        if self._accelerator.is_main_process:
            with profiler or contextlib.nullcontext():
                answer = [self.vllm_client.complete(everyones[::num_generations], self._sampling(num_generations))]
        broadcast_object_list(answer, from_process=0)
        start = self._accelerator.process_index * len(prompts)
        mine = answer[0][start : start + len(prompts)]
        return prompts, [ids for ids, _ in mine], [[[value] for value in values] for _, values in mine], None

    def _sampling(self, n: int) -> dict[str, Any]:
        given = self._settings
        sampling = {name: given[name] for name in ("temperature", "top_p", "top_k", "repetition_penalty")}
        sampling |= {"n": n, "min_p": given["min_p"] or 0.0, "max_tokens": given["max_completion_length"]}
        if given.get("structured_outputs_regex") is not None:
            sampling["structured_outputs"] = {"regex": given["structured_outputs_regex"]}
        return {**sampling, **(given.get("generation_kwargs") or {})}


Completion = tuple[list[int], list[float | None]]
"""Token ids, and what the server thinks of each one's log probability (None: it can't say)."""


class AdapterClient:
    """One vLLM server over HTTP. Each failure is a ServerError, and nothing waits forever.

    A connection for each request: the server closes idle ones, and a step is long enough for that to happen.
    """

    def __init__(self, base_url: str, served_name: str, *, request_timeout_s: float) -> None:
        self._address = base_url.removeprefix("http://").rstrip("/")
        self._served_name = served_name
        self._timeout = request_timeout_s
        self._adapter: str | None = None

    def check(self) -> None:
        """The server that answers is the one started for this attempt, not a leftover of another."""
        answer = self._json("GET", "/v1/models", timeout=CONNECT_TIMEOUT_S)
        names = [str(model.get("id")) for model in answer.get("data", [])]
        if self._served_name not in names:
            raise ServerError(f"Another vLLM server answers at {self._address}: it serves {', '.join(names)}.")

    def get_server_info(self) -> dict[str, Any]:
        """What TRL asks about after building its backend: whether log probabilities are those sampled from.

        A server with its development routes shut doesn't tell; ours are started with processed_logprobs.
        """
        status, body = self._send("GET", "/server_info?config_format=json", timeout=CONNECT_TIMEOUT_S)
        if status == http.client.OK:
            config: dict[str, Any] = self._decoded("/server_info", body)["vllm_config"]
            return config
        return {"model_config": {"logprobs_mode": "processed_logprobs"}}

    def use_adapter(self, name: str, path: Path) -> str | None:
        """Load an adapter and sample from it from now on. Returns the one it replaces, which is unloaded."""
        self._text("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path)})
        replaced, self._adapter = self._adapter, name
        if replaced is not None:
            self._text("/v1/unload_lora_adapter", {"lora_name": replaced})
        return replaced

    def complete(self, prompts: list[list[int]], sampling: dict[str, Any]) -> list[Completion]:
        """sampling["n"] completions a prompt, prompt by prompt, in one request."""
        path = "/v1/completions"
        flags = {"return_token_ids": True, "return_tokens_as_token_ids": True, "logprobs": 0}
        request = {"model": self._adapter or self._served_name, "prompt": prompts, **sampling, **flags}
        answer = self._json("POST", path, request, timeout=self._timeout)
        try:
            choices = sorted(answer["choices"], key=lambda choice: choice["index"])
            completions = [(choice["token_ids"], choice["logprobs"]["token_logprobs"]) for choice in choices]
            whole = all(len(ids) == len(values) for ids, values in completions)
        except (KeyError, TypeError) as error:
            raise ServerError(f"The vLLM server's answer to {path} lacks {error}.") from error
        wanted = len(prompts) * sampling["n"]
        if len(completions) != wanted or not whole:
            raise ServerError(f"The vLLM server answered {path} with {len(completions)} of {wanted} completions.")
        return [(ids, [None if v is None or math.isnan(v) else v for v in values]) for ids, values in completions]

    def _json(self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout: float) -> dict[str, Any]:
        status, answer = self._send(method, path, body, timeout=timeout)
        if status != http.client.OK:
            raise ServerError(f"The vLLM server refused {path} ({status}): {_message(answer)}")
        return self._decoded(path, answer)

    def _text(self, path: str, body: dict[str, Any]) -> None:
        status, answer = self._send("POST", path, body, timeout=LOAD_TIMEOUT_S)
        if status != http.client.OK:
            raise ServerError(f"The vLLM server refused {path} for {body['lora_name']} ({status}): {_message(answer)}")

    def _decoded(self, path: str, answer: bytes) -> dict[str, Any]:
        try:
            document: dict[str, Any] = json.loads(answer)
        except ValueError as error:
            raise ServerError(f"The vLLM server's answer to {path} is no JSON: {_message(answer)}") from error
        return document

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout: float) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self._address, timeout=timeout)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        except TimeoutError as error:
            raise ServerError(f"The vLLM server at {self._address} didn't answer {path} in {timeout:g} s.") from error
        except (OSError, http.client.HTTPException) as error:
            what = str(error) or type(error).__name__
            raise ServerError(f"The vLLM server at {self._address} is gone: {path} failed with {what}.") from error
        finally:
            connection.close()


def _message(answer: bytes) -> str:
    """What an error answer says, in vLLM's shape or any other, short enough for a sentence."""
    text = answer.decode("utf-8", "replace")
    with contextlib.suppress(ValueError, TypeError, KeyError):
        text = str(json.loads(text)["error"]["message"])
    return " ".join(text.split())[:400] or "no reason given"
