"""Hostile requests: for each entry of the web that meets foreign text, what would stop a web that trusts it."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from urllib.parse import urlencode

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Origin

from controlplane.platform.http.body_limit import DEFAULT_LIMIT
from controlplane.platform.http.request_body import TEXT_LIMIT
from workers.rewards.library import LIBRARY

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
MIB = 2**20
LONGEST = DEFAULT_LIMIT
BACKTRACKS = "(?:a|a)*(?:b|b)*(a*)*c"
NEWLINES = "\n" * 19_000
PREPARED = """
from controlplane.catalogue.rewards.models import RewardConfig, RewardVersion
from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import ApiScope, User
from runs.engine.records import SampleRow
from tests.runs.builders import a_run, an_attempt
from runs.intake.host_api import uploads

operator = User.objects.get(username="operator")
run = an_attempt(run=a_run("attacked")).run
run.notes = notes
run.save(update_fields=["notes"])
lines = [{"step": 1, "row": None, "prompt": text, "answer": text, "completions": [
    {"text": text, "tokens": 3, "end": "eos", "rewards": {}, "reward": 0.5, "advantage": 0.1}]} for text in texts]
uploads.samples(run.latest(), 1, lines)
config = RewardConfig.objects.create(name="long")
for number, source in enumerate(sources, 1):
    part = {"name": "code", "function": "python", "params": {"source": source}}
    RewardVersion.objects.create(config=config, number=number, components=[part])
group = SampleRow.objects.filter(run=run).first().pk
from controlplane.catalogue.environments import saving
version = saving.make("attacked", saving.EnvironmentComposition(
    [{"name": "calculator", "function": "calculator", "params": {}}]))
from controlplane.catalogue.datasets.models import DatasetVersion, Tokenizer
from tests.controlplane.catalogue.datasets.sources import jsonl
from tests.controlplane.catalogue.datasets.steps import uploaded
from tests.controlplane.catalogue.datasets.tokenizers import a_tokenizer
mapped = uploaded(jsonl(rows), name="attacked")
mapped.status, mapped.report = DatasetVersion.NEEDS_MAPPING, {"columns": [{"name": name} for name in rows[0]]}
mapped.save(update_fields=["status", "report"])
for number, template in enumerate(templates):
    tokenizer = Tokenizer.objects.create(sha256=f"{number:064}", model=f"attacked-{number}", has_chat_template=True)
    a_tokenizer(tokenizer.folder, chat_template=template)
result = {"environment": version.environment_id, "run": run.pk, "config": config.pk, "group": group,
          "token": api_tokens.make(operator, "attacks", ApiScope.OPERATE, days=1)[1], "mapped": mapped.dataset_id}
"""
TEMPLATES = {
    "endless loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a gigabyte of text": "{{ ('a' * 1000000) * 1000 }}",
    "millions of pieces": "{% for a in range(9000000) %}{{ messages }}{% endfor %}",
    "thousands of blocks": "{% if messages %}" * 4_000 + "a" + "{% endif %}" * 4_000,
    "a value that grows": "{% set n = namespace(a='a') %}{% for _ in range(60) %}{% set n.a = n.a + n.a %}{% endfor %}",
}
"""Chat templates of models that a host has inspected, each with a name."""


@dataclass(frozen=True)
class Attack:
    """One request. Its path may name what was prepared, such as {run} or {mapped}, a dataset that waits for its
    mapping."""

    name: str
    path: str
    form: Mapping[str, Any] = field(default_factory=dict)
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    method: str = "POST"
    send: Callable[[httpx.Client, str], int] | None = None

    def carry_out(self, client: httpx.Client, facts: Mapping[str, Any]) -> int:
        """The answer's status."""
        path = self.path.format(**facts)
        if self.send is not None:
            return self.send(client, path)
        headers = dict(self.headers)
        if path.startswith("/api/"):
            headers |= {"Authorization": f"Bearer {facts['token']}", "Content-Type": "application/json"}
        form = {name: str(value).format(**facts) if name == "run" else value for name, value in self.form.items()}
        content = self.content or (urlencode(form, doseq=True).encode() if form and not self.files else b"")
        if self.files:
            answer = client.post(path, data=form, files=dict(self.files), headers=headers)
        else:
            kind = {} if "Content-Type" in headers else FORM
            answer = client.request(self.method, path, content=content, headers={**kind, **headers})
        return answer.status_code


def prepared() -> dict[str, Any]:
    """What PREPARED is given: stored completions, two versions of a long source, rows to map, and chat templates."""
    changed = [[str(number * factor % 150) for number in range(5000)] for factor in (1, 7)]
    return {
        "notes": ">" * 2_000 + "\n" + "a\n" * 3_900,
        "texts": ["<tool_call>[</tool_call>" * 8_000, "<|im_start|>a\n" * 12_000, "`" * 100_000],
        "sources": [
            "def reward(completions):\n    return [0.0]\n" + "\n".join(f"#{n}" for n in lines) for lines in changed
        ],
        "rows": [{"prompt": text, "answer": "#### " * 50_000, "more": text} for text in _row_texts()],
        "templates": list(TEMPLATES.values()),
    }


def _row_texts() -> list[Any]:
    nested: Any = "a"
    for _ in range(60):
        nested = [nested]
    return ["{prompt}" * 60_000, nested, {f"name {n}": n for n in range(30_000)}, "\ud800\0\u202e" * 60_000]


def mapping_form(**changes: Any) -> dict[str, Any]:
    """What the page of a mapping sends for its preview."""
    sent = {"transform": "columns", "prompt": "prompt", "holds": "text", "answer": "answer", "chat": "chat"}
    return {**sent, "share": "0", "seed": "7", **changes}


def reward_form(
    completion: str, *, times: int = 1, answer: str = "4", **functions: Mapping[str, Any]
) -> dict[str, Any]:
    """What the playground sends: components with parameters, and completions written by hand."""
    sent: dict[str, Any] = {"name": "x", "aggregation": "sum_then_normalize", "from": "hand", "prompt": "p"}
    sent |= {"answer": answer, "tests": "", "completion": [completion] * times, "of": [""] * times, "row": []}
    for number, (function, params) in enumerate(functions.items()):
        prefix = f"c{number}"
        sent["row"].append(prefix)
        sent |= {f"{prefix}-function": function, f"{prefix}-name": function, f"{prefix}-weight": "1"}
        values = LIBRARY[function].defaults() | params
        sent |= {f"{prefix}-p_{name}": value for name, value in values.items() if value is not False}
    return sent


def _pattern(pattern: str) -> dict[str, Any]:
    return {"pattern": pattern}


def _api(**values: Any) -> bytes:
    return json.dumps(values).encode()


def _reward_document(function: str, **params: Any) -> str:
    return json.dumps({"name": "x", "components": [{"name": "a", "function": function, "weight": 1, "params": params}]})


def _bomb() -> bytes:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(3000):
            archive.writestr(f"{number}/", b"")
        archive.writestr("spec.json", b" " * 200 * MIB)
    return packed.getvalue()


def _socket(client: httpx.Client, path: str) -> int:
    """Send a frame of 15 MiB: 413 if the server closes the socket for it, 200 if it stays open."""
    site = str(client.base_url).rstrip("/")
    headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in client.cookies.items())}
    address = site.replace("http", "ws", 1) + path
    try:
        with connect(address, additional_headers=headers, origin=Origin(site), max_size=None) as socket:
            socket.send("[" + "[]," * 5 * MIB + "0]")
            while True:
                socket.recv(timeout=2)
    except TimeoutError:
        return httpx.codes.OK
    except ConnectionClosed:
        return httpx.codes.REQUEST_ENTITY_TOO_LARGE


ROW = {"prompt": "p", "answer": NEWLINES}
WIDE = ('{"a":[' + "[]," * 340_000 + "0]}").encode()
ATTACKS = [
    Attack("score: a backtracking answer", "/rewards/try/", reward_form("print(1)", same_output={}, answer=NEWLINES)),
    Attack(
        "score: long completions",
        "/rewards/try/",
        reward_form(
            "\\boxed{" * 2_800,
            times=32,
            numeric_match={},
            exact_match={},
            think_tags={},
            length={},
            repetition_penalty={},
            language={},
        ),
    ),
    Attack("score: a pattern", "/rewards/try/", reward_form("a" * 19_000, times=8, regex_match=_pattern(BACKTRACKS))),
    Attack(
        "score: a pattern that is only slow",
        "/rewards/try/",
        reward_form("a" * 19_000, times=32, regex_match=_pattern("a*a*b")),
    ),
    Attack(
        "score: a schema",
        "/rewards/try/",
        reward_form("[" * 9_000, times=32, json_valid={"schema": '{"allOf":[' + "{}," * 6_000 + "{}]}"}),
    ),
    Attack(
        "score, API",
        "/api/v1/rewards/try",
        content=_api(document=_reward_document("same_output"), row=ROW, completions=["\n" * 19_000] * 16),
    ),
    Attack("balance: a pattern", "/rewards/balance/", reward_form("", regex_match=_pattern(BACKTRACKS))),
    Attack(
        "save: code of a hundred thousand characters",
        "/rewards/new/",
        reward_form("", python={"source": "a=1\n" * 24_000}),
    ),
    Attack(
        "preview: a tool's code",
        "/environments/preview/",
        {
            "name": "x",
            "row": ["c0"],
            "c0-function": "python_tool",
            "c0-name": "a",
            "c0-p_source": "def f():\n" + " a=1\n" * 19_000,
        },
    ),
    Attack("import rewards: YAML", "/rewards/import/", {"text": "name: a\ncomponents: [" + "1," * 250_000 + "]"}),
    Attack(
        "import rewards: aliases",
        "/rewards/import/",
        {"text": "a: &a [x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(9_000))},
    ),
    Attack("import an environment: YAML", "/environments/import/", {"text": "name: a\nparts:\n" + "- 1\n" * 120_000}),
    Attack("import a profile: JSON", "/hardware/profiles/import/", files={"file": WIDE}),
    Attack("import a run: JSON", "/runs/new/import", files={"import_file": WIDE}),
    Attack("import a run: nesting", "/runs/new/import", files={"import_file": b'{"a":' * 190_000}),
    Attack("import a run: Python", "/runs/new/import", {"import_text": "GRPOConfig(a=(" + "1," * 32_000 + "))"}),
    Attack("import a run: depth of Python", "/runs/new/import", {"import_text": "GRPOConfig(a=" + "-" * 60_000 + "1)"}),
    Attack("import a run: a command", "/runs/new/import", {"import_text": "trl grpo " + "--a '1' " * 7_500}),
    Attack(
        "import a run: YAML",
        "/runs/new/import",
        {"import_text": "learning_rate: 1\n" + "".join(f"k{n}: 1\n" for n in range(5_000))},
    ),
    Attack("import a run: a .zip", "/runs/new/import", {"import_text": ""}, files={"import_file": _bomb()}),
    Attack("preflight, API: a document", "/api/v1/preflight", content=_api(document="a: " + "[" * 60_000)),
    Attack("check a run: a form of percent signs", "/runs/new/check", content=b"name=" + b"%" * (LONGEST - 100)),
    Attack("sign in: a form of percent signs", "/sign-in/", content=b"username=" + b"%" * (LONGEST - 100)),
    Attack(
        "API: two million brackets", "/api/v1/rewards/try", content=b'{"a":[' + b"[]," * (LONGEST // 3 - 10) + b"0]}"
    ),
    Attack("API: nesting", "/api/v1/rewards/try", content=b"[" * (LONGEST - 10)),
    Attack("API: escapes", "/api/v1/rewards/try", content=b'{"a":"' + b"\\u0000" * (LONGEST // 6 - 10) + b'"}'),
    Attack("a body that is too large", "/sign-in/", content=b"username=" + b"%" * (4 * LONGEST)),
    Attack("rows of a dataset: percent signs", "/datasets/rows/", content=b"rows=" + b"%" * (TEXT_LIMIT - 100)),
    Attack("rows of a dataset", "/datasets/rows/", {"name": "attack", "rows": '{"prompt":' + "[" * 900_000}),
    Attack("notes, API", "/api/v1/runs/{run}", content=_api(notes="*_" * 4_900), method="PATCH"),
    Attack("tags", "/runs/{run}/tags", {"add": "a," * 400_000}),
    Attack("a run's page", "/runs/{run}/", method="GET"),
    Attack("stored completions", "/runs/{run}/completions/{group}/", method="GET"),
    Attack(
        "replay of stored completions",
        "/rewards/replay/",
        reward_form("", same_output={}, numeric_match={}) | {"replay": "{run}", "groups": "64", "which": "spread"},
    ),
    Attack("two versions of a long source", "/rewards/{config}/v2/", method="GET"),
    Attack("search", "/search/?" + urlencode({"q": "a " * 15_000}), method="GET"),
    Attack("list of runs", "/runs/?" + urlencode({"q": "%_" * 12_000, "tag": ["a"] * 500}, doseq=True), method="GET"),
    Attack(
        "environment call: an expression",
        "/environments/{environment}/v1/call/",
        {"call": ["c0"], "c0-tool": "calculator", "c0-a_expression": "(" * 200 + "9**9**9" + ")" * 190},
    ),
    Attack(
        "environment call, API: nested arguments",
        "/api/v1/environments/{environment}/1/call",
        content=b'{"tool": "calculator", "arguments": {"expression": ' + b"[" * 400 + b"]" * 400 + b"}}",
    ),
    Attack(
        "episode: two hundred moves",
        "/environments/{environment}/v1/move/",
        {"moves": json.dumps([{"text": "x" * 900, "calls": []}] * 200)},
    ),
    Attack("episode: scores of brackets", "/environments/{environment}/v1/scores/", {"episode": "[]," * 500_000}),
    Attack("mapping: long rows", "/datasets/{mapped}/1/example/", mapping_form(answer_after="####", metadata="more")),
    Attack(
        "mapping: a template of placeholders",
        "/datasets/{mapped}/1/example/",
        mapping_form(template="{prompt}" * 900, system_prompt="{more}" * 1_200),
    ),
    Attack(
        "mapping: a thousand paths to keep",
        "/datasets/{mapped}/1/example/",
        mapping_form(metadata=",".join(f"more.{n}" for n in range(240)) + ",more" + ".a" * 400),
    ),
    Attack(
        "mapping, API: a template of placeholders",
        "/api/v1/datasets/{mapped}/1/preview",
        content=_api(values=mapping_form(template="{prompt}" * 900)),
    ),
    *(
        Attack(
            f"chat template: {name}",
            "/datasets/{mapped}/1/example/",
            mapping_form(tokenizer=f"{number:064}", token_limit="100"),
        )
        for number, name in enumerate(TEMPLATES)
    ),
    Attack("sign in: a form of empty fields", "/sign-in/", content=b"&" * (LONGEST - 100)),
    Attack("dataset upload: brackets", "/datasets/upload/", {"name": "attack"}, files={"file": b"[]," * 10 * MIB}),
    Attack("a websocket's frame", "/ws/runs/{run}/", send=_socket),
]
