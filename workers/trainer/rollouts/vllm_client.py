"""A client of one vLLM server: loads and unloads adapters, and gets completions as token ids.

TRL's own client waits forever for a server that has died; here each failure is a ServerError, and every request has a
time-out.
"""

import contextlib
import http.client
import json
import math
from pathlib import Path
from typing import Any

from workers import outbound
from workers.trainer.configuration.spec import TrainerError

CONNECT_TIMEOUT_S = 10.0
"""Time-out of requests that the server answers immediately."""
LOAD_TIMEOUT_S = 120.0
LONGEST_ANSWER = 2**31
"""Bytes; a token takes about a hundred."""
POLICY = "policy-v"
"""Prefix of adapter names, which end with a version."""
WITH_TOKEN_IDS = {"return_token_ids": True, "return_tokens_as_token_ids": True, "logprobs": 0}
"""Flags of a request for completions."""
_ADAPTERS_SHUT = (
    ". It takes no adapters: a server for the LoRA hot-swap is started with --enable-lora and "
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1."
)


def adapter_prefix(attempt_id: str) -> str:
    """Name the prefix of an attempt's adapters on servers that it shares with others."""
    return f"{attempt_id}-v"


class ServerError(TrainerError):
    """The vLLM server has failed."""

    exit_code = 5


Completion = tuple[list[int], list[float | None]]
"""Token ids with their log-probabilities (None: unknown)."""


class AdapterClient:
    """The routes that a LoRA run needs, each with a time-out.

    Each request opens a connection: the server closes idle ones, and a step is long enough for that to happen.
    """

    def __init__(
        self,
        base_url: str,
        served_name: str | None,
        *,
        request_timeout_s: float,
        role: str = "",
        adapters: str = POLICY,
    ) -> None:
        """Create the client. `served_name`: None for an external server, whose model is the first that it lists.
        `role`: distinguishes servers in messages. `adapters`: prefix of the adapters that this client may unload ("":
        all)."""
        self._url = base_url.rstrip("/")
        self._address = self._url.removeprefix("http://")
        self._served_name = served_name
        self._timeout = request_timeout_s
        self._adapters = adapters
        self._adapter: str | None = None
        self._longest: int | None = None
        self._title = f"The vLLM server {role} at {self._address}" if role else f"The vLLM server at {self._address}"

    @property
    def address(self) -> str:
        return self._url

    @property
    def model(self) -> str:
        """The policy's current name on the server."""
        return self._adapter or self._served_name or ""

    def check(self) -> None:
        """Check that the right server answers, and unload adapters of an earlier trainer of this run."""
        answer = self._json("GET", "/v1/models", timeout=CONNECT_TIMEOUT_S)
        models = [model for model in answer.get("data", []) if isinstance(model, dict)]
        names = [str(model.get("id")) for model in models]
        if self._served_name is None:
            self._served_name = next((str(m.get("id")) for m in models if m.get("parent") is None), None)
            if self._served_name is None:
                raise ServerError(f"{self._title} serves no model.")
        if self._served_name not in names:
            raise ServerError(f"Another vLLM server answers at {self._address}: it serves {', '.join(names)}.")
        lengths = [model.get("max_model_len") for model in models if model.get("id") == self._served_name]
        self._longest = next((length for length in lengths if isinstance(length, int)), None)
        for name in names:
            if name.startswith(self._adapters) and name != self._served_name:
                self._change_adapter("unload", name, shared=True)

    def unload_all(self, prefix: str) -> None:
        """Unload all adapters whose names begin with `prefix`."""
        models = self._json("GET", "/v1/models", timeout=CONNECT_TIMEOUT_S).get("data", [])
        for name in [str(model.get("id")) for model in models if model.get("parent") is not None]:
            if name.startswith(prefix):
                self._change_adapter("unload", name, shared=True)

    def get_server_info(self) -> dict[str, Any]:
        """Answer TRL's query after building its backend: are log-probabilities those that it sampled from?

        A server without development routes doesn't say; ours are started with processed_logprobs.
        """
        status, body = self._send("GET", "/server_info?config_format=json", timeout=CONNECT_TIMEOUT_S)
        if status == http.client.OK:
            config: dict[str, Any] = self._decoded("/server_info", body)["vllm_config"]
            return config
        return {"model_config": {"logprobs_mode": "processed_logprobs", "max_model_len": self._longest}}

    def use_adapter(self, name: str, path: Path) -> str | None:
        """Load an adapter, and sample from it. Return the one that it replaces, which is unloaded."""
        self._change_adapter("load", name, lora_path=str(path))
        replaced, self._adapter = self._adapter, name
        if replaced is not None:
            self._change_adapter("unload", replaced)
        return replaced

    def leave(self) -> None:
        """Unload the adapter from a server that keeps running; an unreachable server isn't a failure."""
        if self._adapter is not None:
            with contextlib.suppress(ServerError):
                self._change_adapter("unload", self._adapter)
            self._adapter = None

    def complete(self, prompts: list[list[int]], sampling: dict[str, Any]) -> list[Completion]:
        """Request sampling["n"] completions per prompt; return them prompt by prompt."""
        path = "/v1/completions"
        request = {"model": self._adapter or self._served_name, "prompt": prompts, **sampling, **WITH_TOKEN_IDS}
        answer = self._json("POST", path, request, timeout=self._timeout)
        try:
            choices = sorted(answer["choices"], key=lambda choice: choice["index"])
            completions = [(choice["token_ids"], choice["logprobs"]["token_logprobs"]) for choice in choices]
            whole = all(len(ids) == len(values) for ids, values in completions)
        except (KeyError, TypeError) as error:
            raise ServerError(f"{self._title} answered {path} with something that lacks {error}.") from error
        expected = len(prompts) * sampling["n"]
        if len(completions) != expected or not whole:
            raise ServerError(f"{self._title} answered {path} with {len(completions)} of {expected} completions.")
        return [(ids, finite_logprobs(values)) for ids, values in completions]

    def _change_adapter(self, verb: str, name: str, *, shared: bool = False, **details: str) -> None:
        """Load or unload an adapter. `shared`: another process may unload it as well."""
        path = f"/v1/{verb}_lora_adapter"
        status, answer = self._send("POST", path, {"lora_name": name, **details}, timeout=LOAD_TIMEOUT_S)
        if status == http.client.OK or (shared and status == http.client.NOT_FOUND):
            return
        why = _message(answer)
        if status == http.client.NOT_FOUND and "adapter" not in why:  # the route itself isn't there
            why += _ADAPTERS_SHUT
        raise ServerError(f"{self._title} refused {path} for {name} ({status}): {why}")

    def _json(self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout: float) -> dict[str, Any]:
        status, answer = self._send(method, path, body, timeout=timeout)
        if status != http.client.OK:
            raise ServerError(f"{self._title} refused {path} ({status}): {_message(answer)}")
        return self._decoded(path, answer)

    def _decoded(self, path: str, answer: bytes) -> dict[str, Any]:
        try:
            document: dict[str, Any] = json.loads(answer)
        except ValueError as error:
            raise ServerError(f"{self._title} answered {path} with invalid JSON: {_message(answer)}") from error
        return document

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout: float) -> tuple[int, bytes]:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        try:
            answer = outbound.send(
                method, self._url + path, body=content, headers=headers, seconds=timeout, limit=LONGEST_ANSWER
            )
            return answer.status, answer.whole()
        except outbound.TimedOut as error:
            raise ServerError(f"{self._title} didn't answer {path} in {timeout:g} s.") from error
        except outbound.OutboundError as error:
            raise ServerError(f"{self._title} is gone: {path} failed. {error}") from error


def finite_logprobs(values: list[float | None]) -> list[float | None]:
    """Replace a server's NaN by None."""
    return [None if value is None or math.isnan(value) else value for value in values]


def _message(answer: bytes) -> str:
    """Extract the message of an error answer, short enough for a sentence."""
    text = answer.decode("utf-8", "replace")
    with contextlib.suppress(ValueError, TypeError, KeyError):
        text = str(json.loads(text)["error"]["message"])
    return " ".join(text.split())[:400] or "no reason given"
