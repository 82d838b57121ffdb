"""The endpoint of a model that is served with a key: its address, and examples of calls."""

from dataclasses import dataclass
from ipaddress import ip_address

from runs.engine.models import Run
from runs.engine.served import starting
from workers.contract.reports.chat import REQUESTS
from workers.contract.run.jobs import LOOPBACK

CURL = """curl {url}/chat/completions \\
  -H "Authorization: Bearer $KEY" \\
  -H "Content-Type: application/json" \\
  -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
"""
PYTHON = """import os

from openai import OpenAI

client = OpenAI(base_url="{url}", api_key=os.environ["KEY"])
answer = client.chat.completions.create(
    model="{model}",
    messages=[{{"role": "user", "content": "Hello"}}],
)
print(answer.choices[0].message.content)
"""


@dataclass(frozen=True)
class ServedEndpoint:
    run: Run
    url: str
    """The endpoint's URL, or "" until it has a port."""
    models: list[str]
    requests: int
    only_there: bool
    """True if only programs on its host can reach the endpoint."""

    @property
    def curl(self) -> str:
        return CURL.format(url=self.url, model=self.models[0])

    @property
    def python(self) -> str:
        return PYTHON.format(url=self.url, model=self.models[0])


def of(run: Run) -> ServedEndpoint:
    attempt, address = run.latest(), str(run.spec["job"]["address"])
    ports = (attempt.placement or {}).get("ports") or []
    url = (
        f"http://{_client_address(address, attempt.host.name if attempt.host else '')}:{ports[-1]}/v1" if ports else ""
    )
    count = int(run.last_metrics.get(REQUESTS) or 0)
    return ServedEndpoint(run, url, starting.models_of(run), count, only_there=address == LOOPBACK)


def _client_address(address: str, host: str) -> str:
    """Format the listening address for a client's URL: the host's name if the server listens on all addresses."""
    ip = ip_address(address)
    if ip.is_unspecified:
        return host
    return f"[{ip}]" if ip.version == 6 else str(ip)
