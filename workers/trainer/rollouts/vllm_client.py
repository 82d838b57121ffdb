"""A client of one vLLM server, which loads and unloads adapters, and gets completions as token ids.

TRL's own client waits forever for a server that has died; here every failure is a ServerError, and every request has a
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
"""Time-out of requests to which the server responds immediately."""
LOAD_TIMEOUT_S = 120.0
MAX_RESPONSE_BYTES = 2**31
"""Maximum size of a response; a token takes about a hundred bytes."""
POLICY_PREFIX = "policy-v"
WITH_TOKEN_IDS = {"return_token_ids": True, "return_tokens_as_token_ids": True, "logprobs": 0}
_NO_ADAPTERS = (
    ". It doesn't accept adapters: a server for the LoRA hot-swap is started with --enable-lora and "
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1."
)


def adapter_prefix(attempt_id: str) -> str:
    """Return the prefix of an attempt's adapters on servers that it shares with others."""
    return f"{attempt_id}-v"


class ServerError(TrainerError):
    exit_code = 5


Completion = tuple[list[int], list[float | None]]
"""Token ids and their log-probabilities, None where unknown."""


class AdapterClient:
    """Client for the routes that a LoRA run needs, each with a time-out. Each request opens a connection, because the
    server closes idle ones, and a step is long enough for that to happen."""

    def __init__(
        self,
        base_url: str,
        served_name: str | None,
        *,
        request_timeout_s: float,
        role: str = "",
        adapters: str = POLICY_PREFIX,
    ) -> None:
        """Create the client. `served_name`: None for an external server, whose model is the first that it lists.
        `role`: distinguishes servers in messages. `adapters`: the prefix of the adapters that this client may unload,
        or "" for all."""
        self._url = base_url.rstrip("/")
        self._address = self._url.removeprefix("http://")
        self._served_name = served_name
        self._timeout = request_timeout_s
        self._adapters = adapters
        self._adapter: str | None = None
        self._max_model_len: int | None = None
        self._title = f"The vLLM server {role} at {self._address}" if role else f"The vLLM server at {self._address}"

    @property
    def address(self) -> str:
        return self._url

    @property
    def model(self) -> str:
        """The policy's current name on the server."""
        return self._adapter or self._served_name or ""

    def check(self) -> None:
        """Check that the right server responds, and unload adapters of an earlier trainer of this run. Raises
        ServerError if another server responds or it serves no model."""
        document = self._json("GET", "/v1/models", timeout=CONNECT_TIMEOUT_S)
        models = [model for model in document.get("data", []) if isinstance(model, dict)]
        names = [str(model.get("id")) for model in models]
        if self._served_name is None:
            self._served_name = next((str(m.get("id")) for m in models if m.get("parent") is None), None)
            if self._served_name is None:
                raise ServerError(f"{self._title} serves no model.")
        if self._served_name not in names:
            raise ServerError(f"Another vLLM server is responding at {self._address}: it serves {', '.join(names)}.")
        lengths = [model.get("max_model_len") for model in models if model.get("id") == self._served_name]
        self._max_model_len = next((length for length in lengths if isinstance(length, int)), None)
        for name in names:
            if name.startswith(self._adapters) and name != self._served_name:
                self._change_adapter("unload", name, shared=True)

    def unload_all(self, prefix: str) -> None:
        models = self._json("GET", "/v1/models", timeout=CONNECT_TIMEOUT_S).get("data", [])
        for name in [str(model.get("id")) for model in models if model.get("parent") is not None]:
            if name.startswith(prefix):
                self._change_adapter("unload", name, shared=True)

    def get_server_info(self) -> dict[str, Any]:
        """Return the information that TRL queries after building its backend: whether log-probabilities are those that
        the server sampled from. A server without development routes doesn't reveal that; ours are started with
        processed_logprobs."""
        status, body = self._send("GET", "/server_info?config_format=json", timeout=CONNECT_TIMEOUT_S)
        if status == http.client.OK:
            config: dict[str, Any] = self._decode("/server_info", body)["vllm_config"]
            return config
        return {"model_config": {"logprobs_mode": "processed_logprobs", "max_model_len": self._max_model_len}}

    def use_adapter(self, name: str, path: Path) -> str | None:
        """Load an adapter to sample from, unload the one that it replaces, and return the latter's name or None."""
        self._change_adapter("load", name, lora_path=str(path))
        replaced, self._adapter = self._adapter, name
        if replaced is not None:
            self._change_adapter("unload", replaced)
        return replaced

    def unload_last(self) -> None:
        """Unload the current adapter from a server that keeps running. An unreachable server isn't a failure."""
        if self._adapter is not None:
            with contextlib.suppress(ServerError):
                self._change_adapter("unload", self._adapter)
            self._adapter = None

    def complete(self, prompts: list[list[int]], sampling: dict[str, Any]) -> list[Completion]:
        """Request sampling["n"] completions per prompt, and return them prompt by prompt."""
        path = "/v1/completions"
        request = {"model": self._adapter or self._served_name, "prompt": prompts, **sampling, **WITH_TOKEN_IDS}
        document = self._json("POST", path, request, timeout=self._timeout)
        try:
            choices = sorted(document["choices"], key=lambda choice: choice["index"])
            completions = [(choice["token_ids"], choice["logprobs"]["token_logprobs"]) for choice in choices]
            is_whole = all(len(ids) == len(values) for ids, values in completions)
        except (KeyError, TypeError) as error:
            raise ServerError(f"{self._title} sent an unexpected response to {path}: {error!r}.") from error
        expected = len(prompts) * sampling["n"]
        if len(completions) != expected or not is_whole:
            raise ServerError(f"{self._title} responded to {path} with {len(completions)} of {expected} completions.")
        return [(ids, finite_logprobs(values)) for ids, values in completions]

    def score(self, sequences: list[list[int]]) -> list[list[float | None]]:
        """Return the log-probability of each token of each sequence, at temperature 1, or None for the first token."""
        if not self.model:
            self.check()
        path = "/v1/completions"
        request = {"model": self.model, "prompt": sequences, "max_tokens": 1, "temperature": 0, "echo": True}
        document = self._json("POST", path, {**request, "logprobs": 1}, timeout=self._timeout)
        try:
            choices = sorted(document["choices"], key=lambda choice: choice["index"])
            scores = [choice["logprobs"]["token_logprobs"] for choice in choices]
            scores = [values[: len(ids)] for values, ids in zip(scores, sequences, strict=True)]
        except (KeyError, TypeError, ValueError) as error:
            raise ServerError(f"{self._title} sent an unexpected response to {path}: {error!r}.") from error
        if any(len(values) != len(ids) for values, ids in zip(scores, sequences, strict=True)):
            raise ServerError(f"{self._title} responded to {path} without the scores of the prompts.")
        return [finite_logprobs(values) for values in scores]

    def _change_adapter(self, verb: str, name: str, *, shared: bool = False, **details: str) -> None:
        """Load or unload an adapter. `shared`: whether another process may unload it as well."""
        path = f"/v1/{verb}_lora_adapter"
        status, content = self._send("POST", path, {"lora_name": name, **details}, timeout=LOAD_TIMEOUT_S)
        if status == http.client.OK or (shared and status == http.client.NOT_FOUND):
            return
        reason = _message(content)
        if status == http.client.NOT_FOUND and "adapter" not in reason:  # the route itself isn't there
            reason += _NO_ADAPTERS
        raise ServerError(f"{self._title} refused {path} for {name} ({status}): {reason}")

    def _json(self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout: float) -> dict[str, Any]:
        status, content = self._send(method, path, body, timeout=timeout)
        if status != http.client.OK:
            raise ServerError(f"{self._title} refused {path} ({status}): {_message(content)}")
        return self._decode(path, content)

    def _decode(self, path: str, content: bytes) -> dict[str, Any]:
        try:
            document: dict[str, Any] = json.loads(content)
        except ValueError as error:
            raise ServerError(f"{self._title} responded to {path} with invalid JSON: {_message(content)}") from error
        return document

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout: float) -> tuple[int, bytes]:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        try:
            response = outbound.send(
                method, self._url + path, body=content, headers=headers, seconds=timeout, limit=MAX_RESPONSE_BYTES
            )
            return response.status, response.whole()
        except outbound.TimedOut as error:
            raise ServerError(f"{self._title} didn't respond to {path} within {timeout:g} s.") from error
        except outbound.OutboundError as error:
            raise ServerError(f"{self._title} is gone: {path} failed. {error}") from error


def finite_logprobs(values: list[float | None]) -> list[float | None]:
    """Replace NaN, which a server may return, with None."""
    return [None if value is None or math.isnan(value) else value for value in values]


def _message(content: bytes) -> str:
    text = content.decode("utf-8", "replace")
    with contextlib.suppress(ValueError, TypeError, KeyError):
        text = str(json.loads(text)["error"]["message"])
    return " ".join(text.split())[:400] or "no reason given"
