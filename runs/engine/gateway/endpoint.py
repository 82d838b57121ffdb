"""A run's gateway as its page shows it: address, key, and code that connects an agent or an environment of Atropos. An
endpoint that is open to other machines is not encrypted, so only admins may open one."""

from dataclasses import dataclass, replace

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from controlplane.platform.accounts.models import User
from controlplane.platform.accounts.roles import operator_required
from controlplane.platform.http import tokens
from runs.engine import queries
from runs.engine.models import Run
from runs.engine.spec import readable_spec
from runs.engine.states import ACTIVE
from workers.contract.run import gateway
from workers.contract.run.episodes import EpisodeSpec, GatewaySpec
from workers.contract.run.jobs import LOOPBACK

CLIENT = """import os

import httpx
from openai import OpenAI

KEY = os.environ["KEY"]
gate = httpx.Client(base_url="{url}", headers={{"Authorization": f"Bearer {{KEY}}"}}, timeout=60)
while True:
    answer = gate.post("/v1/sessions")
    if answer.status_code == 204:  # no task yet
        continue
    if answer.status_code == 410:  # the run has ended
        break
    task = answer.raise_for_status().json()
    model = OpenAI(base_url=task["base_url"], api_key=KEY)
    messages = task["messages"]  # your agent begins here
    reply = model.chat.completions.create(model=task["model"], messages=messages)
    reward = float("42" in (reply.choices[0].message.content or ""))
    gate.post(f"/s/{{task['id']}}/end", json={{"reward": reward}})
"""
ENVIRONMENT = """python your_environment.py serve \\
  --env.group_size {group} \\
  --env.max_token_length {tokens} \\
  --env.wandb_name your-environment \\
  --env.use_wandb false \\
  --env.tokenizer_name {model} \\
  --env.rollout_server_url {api} \\
  --openai.base_url {url}/v1 \\
  --openai.api_key "$KEY" \\
  --openai.model_name {model} \\
  --openai.server_type vllm
"""
NOW = "now"
ADMIN_ONLY = "Only an admin may open a run’s endpoint to other machines"


@dataclass(frozen=True)
class GatewayMetric:
    label: str
    name: str
    when: str = "in the last step"
    form: str = "number"
    value: float | None = None


@dataclass(frozen=True)
class GatewayEndpoint:
    run: Run
    settings: GatewaySpec
    url: str
    """The endpoint's URL, or "" before it has a port and after the run has ended."""
    api: str
    """The address of Atropos' API."""
    code: str
    live: bool

    @property
    def of_atropos(self) -> bool:
        return self.settings.kind == gateway.ATROPOS

    @property
    def only_there(self) -> bool:
        """True if only programs on the run's host can reach the endpoint."""
        return not self.settings.open_beyond_loopback

    @property
    def was_used(self) -> bool:
        return bool(self.run.last_metrics.get(gateway.REQUESTS))

    @property
    def metrics(self) -> list[GatewayMetric]:
        """The gateway's metrics, now and in the last step; those of sessions are omitted with Atropos."""
        last_metrics, has_agents = self.run.last_metrics, not self.of_atropos
        waits = "Waiting for agents" if has_agents else "Waiting for groups"
        metrics = [GatewayMetric("Open sessions", gateway.SESSIONS_OPEN, NOW)] if has_agents else []
        metrics += [GatewayMetric(waits, gateway.WAITS_S, NOW, "seconds"), GatewayMetric("Requests", gateway.REQUESTS)]
        metrics += [GatewayMetric("Sessions given up", gateway.GONE)] if has_agents else []
        metrics += [GatewayMetric("Time waited", gateway.WAITING, form="seconds")]
        return [replace(metric, value=last_metrics.get(metric.name)) for metric in metrics]


def of(run: Run) -> GatewayEndpoint | None:
    """Describe the endpoint of a run; return None if the run has no gateway."""
    spec = readable_spec(run)
    if spec is None or spec.episodes is None or spec.episodes.gateway is None:
        return None
    settings, attempt = spec.episodes.gateway, run.latest()
    is_live = attempt.status in ACTIVE
    needed_ports = gateway.ports_of(spec.episodes)
    ports = ((attempt.placement or {}).get("ports") or [])[-needed_ports:] if is_live else []
    host = attempt.host.name if settings.open_beyond_loopback and attempt.host else LOOPBACK
    url, api = (f"http://{host}:{ports[0]}", f"http://{LOOPBACK}:{ports[-1]}") if ports else ("", "")
    if settings.kind == gateway.ATROPOS:
        group, model = spec.grpo.get("num_generations", 8), spec.model.path
        code = ENVIRONMENT.format(url=url, api=api, group=group, tokens=settings.max_token_len, model=model)
    else:
        code = CLIENT.format(url=url)
    return GatewayEndpoint(run, settings, url, api, code, is_live)


def may_open(user: User, episodes: EpisodeSpec | None) -> bool:
    """Return whether the user may launch these episodes: only admins may open a gateway to other machines."""
    opens = episodes is not None and episodes.gateway is not None and episodes.gateway.open_beyond_loopback
    return user.may_administer or not opens


@require_POST
@operator_required
def key(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    endpoint = of(run)
    if endpoint is None:
        raise Http404("The run has no gateway.")
    response = render(request, "engine/gateway/_key.html", {"gateway": endpoint, "key": tokens.gateway_key(run.pk)})
    response["Cache-Control"] = "no-store"
    return response
