"""The gateway of a run: checked before the model is loaded, and opened once there is a policy."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.contract.run import gateway
from workers.contract.run.episodes import GatewaySpec
from workers.contract.run.jobs import LOOPBACK
from workers.contract.run.spec import AttemptSpec, servers_of
from workers.contract.stack import commands
from workers.contract.stack.training_rules import TRL_DEFAULTS
from workers.contract.wire.names import FileName
from workers.trainer.activity import RankActivity
from workers.trainer.configuration.spec import SpecError
from workers.trainer.data import Rows
from workers.trainer.episodes import setup
from workers.trainer.gateway.agents import AgentRollouts
from workers.trainer.gateway.atropos import AtroposRollouts
from workers.trainer.gateway.conversing import Conversing
from workers.trainer.gateway.endpoint import AgentEndpoint
from workers.trainer.gateway.engine import MainThread, PolicyEngine, PolicyServers
from workers.trainer.gateway.inference_api import InferenceApi
from workers.trainer.gateway.run_api import RunApi
from workers.trainer.gateway.sessions import SessionManager
from workers.trainer.rollouts.adapter_generation import sampling_parameters

ALL_INTERFACES = "0.0.0.0"  # noqa: S104  # only if the run requests it, and every request needs a key
ENVIRONMENT_REWARD = "environment_reward"


@dataclass(frozen=True, kw_only=True)
class GatewaySetup(setup.Setup):
    """Parts of a trainer whose episodes are driven by external programs."""

    rollouts: AgentRollouts | AtroposRollouts
    spec: AttemptSpec
    settings: GatewaySpec
    conversing: Conversing

    def open(self, trainer: Any, activity: RankActivity) -> None:
        """Connect the rollouts to the engine, and start the endpoint on rank 0."""
        engine = _engine(self.spec, trainer)
        self.conversing.ends = frozenset(trainer.eos_token_ids)
        if not trainer.accelerator.is_main_process:
            self.rollouts.open(None, engine, activity)
            return
        manager = SessionManager(session_s=self.settings.session_s)
        # Without a key, no request is allowed.
        digest = os.environ.pop(gateway.KEY_DIGEST, "") or secrets.token_hex(32)
        endpoint = AgentEndpoint(
            manager, self.conversing, engine, digest=digest, shows_answer=self.settings.shows_answer
        )
        ports = self.spec.placement.ports[-gateway.ports_of(self.spec.run.episodes) :]
        host = ALL_INTERFACES if self.settings.open_beyond_loopback else LOOPBACK
        if isinstance(self.rollouts, AgentRollouts):
            endpoint.open(host, ports[0])
        else:
            self.rollouts.run_api = RunApi(ports[1])
            self.rollouts.inference = InferenceApi(
                self.conversing,
                engine,
                longest=self.settings.max_token_len,
                requests=self.settings.requests,
                interval_s=self.settings.interval_s,
            )
            endpoint.open(host, ports[0], *self.rollouts.inference.routes())
            self.rollouts.run_api.wait_until_ready()
        self.rollouts.open(endpoint, engine, activity)

    def close(self) -> None:
        self.rollouts.close()


def prepare(spec: AttemptSpec, rows: Rows, folder: Path, *, chat_arguments: dict[str, Any]) -> GatewaySetup | None:
    """Prepare the gateway; return None for runs without one. Raises SpecError if the settings, the tokenizer or its
    chat template can't be used."""
    episodes = spec.run.episodes
    if episodes is None or episodes.gateway is None:
        return None
    settings = episodes.gateway
    _check(spec, settings)
    chat_tokenizer, trainer_tokenizer = setup.tokenizer_of(spec), setup.tokenizer_of(spec)
    conversing = Conversing(
        chat_tokenizer,
        episodes.chat_template,
        chat_arguments,
        max_tokens=int(spec.run.grpo.get("max_completion_length") or TRL_DEFAULTS["max_completion_length"]),
        count_outputs=episodes.limits.count_outputs,
    )
    conversing.model = spec.run.name
    conversing.context = setup.context_length(spec)
    if rows.by_id.chat or episodes.chat_template:
        conversing.check()
        trainer_tokenizer.chat_template = chat_tokenizer.chat_template
    stop = folder / FileName.STOP
    rollouts: AgentRollouts | AtroposRollouts
    if settings.kind == gateway.ATROPOS:
        rollouts = AtroposRollouts(conversing, rows.by_id, stop=stop, settings=settings, run_id=spec.run.run_id)
    else:
        rollouts = AgentRollouts(conversing, rows.by_id, stop=stop)
    return GatewaySetup(
        rollouts=rollouts, tokenizer=trainer_tokenizer, spec=spec, settings=settings, conversing=conversing
    )


def _check(spec: AttemptSpec, settings: GatewaySpec) -> None:
    if settings.kind not in gateway.KINDS:
        raise SpecError(f"The kind of a gateway must be one of {', '.join(gateway.KINDS)}, not {settings.kind!r}.")
    if not settings.session_s > 0:
        raise SpecError(f"session_s must be greater than 0, not {settings.session_s:g}.")
    needed_ports = gateway.ports_of(spec.run.episodes)
    if len(spec.placement.ports) < needed_ports + sum(server.own for server in servers_of(spec)):
        raise SpecError(f"The gateway needs {needed_ports} ports, but the placement has too few.")
    if settings.kind != gateway.ATROPOS:
        return
    other_rewards = [reward.name for reward in spec.run.every_reward if reward.function != ENVIRONMENT_REWARD]
    if other_rewards:
        raise SpecError(
            f"Atropos' environments bring their own tasks and scores, so {', '.join(other_rewards)} can't score them: "
            f"use the reward {ENVIRONMENT_REWARD!r} alone."
        )
    if spec.run.grpo.get("eval_strategy", "no") != "no":
        raise SpecError("Atropos' environments run their own evaluations, so a run with Atropos can't have any.")


def _engine(spec: AttemptSpec, trainer: Any) -> PolicyEngine:
    servers = servers_of(spec)
    if not servers:
        return MainThread()
    generation, settings = trainer.vllm_generation, spec.run.hardware.server
    clients = getattr(generation.vllm_client, "clients", None)
    if clients is not None:  # of a LoRA run
        models = [(client.address, lambda client=client: client.model) for client in clients]
        sampling = generation.sampling(1)
    else:
        own_name = generation.model.name_or_path
        names = [commands.served_name(spec, server) if server.own else own_name for server in servers]
        models = [(server.address, lambda name=name: name) for server, name in zip(servers, names, strict=True)]
        sampling = sampling_parameters(vars(generation))
    return PolicyServers(models, sampling, seconds=settings.request_timeout_s if settings else 600.0)
