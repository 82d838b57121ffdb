"""Findings about a run's environment: each is said at its field, and its fix makes it go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controlplane.catalogue.datasets.tool_templates import ToolTemplate
from controlplane.catalogue.hardware.sandboxes import HostSandbox
from runs.engine.scheduling.leasing import need_of
from runs.launch import preflight
from runs.launch.preflight.draft import Draft
from runs.launch.preflight.duration import work_of
from runs.launch.preflight.estimating import settings_of
from runs.launch.preflight.finding import Finding, Grade
from tests.runs.launch.preflight.test_preflight import FINE
from workers.contract.run.episodes import EpisodeLimits, EpisodeSpec, GatewaySpec, PartSpec
from workers.contract.run.spec import RewardSpec
from workers.contract.stack.step_time import TOOLS_S
from workers.environments.library import LIBRARY as ENVIRONMENTS
from workers.rewards.reward import Cost

CALCULATE = PartSpec("calculate", "calculator")
ROOMY = EpisodeLimits(turns=3, output_tokens=16)
TOOLS = EpisodeSpec("sums", 1, (CALCULATE,), ROOMY)
AGENTS = EpisodeSpec(gateway=GatewaySpec())
ATROPOS = EpisodeSpec(gateway=GatewaySpec("atropos"))
MUTE = ToolTemplate(lacks=("calls", "results"), instead="qwen2_5")


def drafted(spec: EpisodeSpec | None = TOOLS, **changes: Any) -> Draft:
    return replace(FINE, episodes=spec, **changes)


def found(draft: Draft, field: str, words: str) -> Finding | None:
    return next((one for one in preflight.check(draft) if one.field == field and words in one.cause), None)


def parts(*some: PartSpec) -> EpisodeSpec:
    return replace(TOOLS, parts=some)


def limits(**changes: Any) -> EpisodeSpec:
    return replace(TOOLS, limits=replace(ROOMY, **changes))


TEMPLATE = {"tool_template": ToolTemplate()}
CASES: list[tuple[Draft, Grade, str, str]] = [
    (drafted(parts()), Grade.STOP, "environment", "has no tools and no game"),
    (drafted(parts(CALCULATE, CALCULATE)), Grade.STOP, "environment", "2 parts of sums are called calculate"),
    (drafted(parts(replace(CALCULATE, name="1 + 1"))), Grade.STOP, "environment", "isn't a valid tool name"),
    (drafted(parts(PartSpec("x", "gone"))), Grade.STOP, "environment", "this version has no gone"),
    (drafted(parts(replace(CALCULATE, params={"digits": 99}))), Grade.STOP, "environment", "calculate: digits"),
    (drafted(limits(turns=1)), Grade.WARN, "episode_turns", "never reads a tool's result"),
    (drafted(limits(call_s=900.0)), Grade.WARN, "episode_call_s", "the whole episode only 600 s"),
    (drafted(limits(output_tokens=4096)), Grade.WARN, "max_completion_length", "episodes will be truncated"),
    (
        drafted(data=replace(FINE.data, chat=False)),
        Grade.STOP,
        "dataset_version",
        "turns and tools are shown as a chat",
    ),
    (drafted(tool_template=MUTE), Grade.STOP, "tool_template", "doesn’t show calls and results"),
    (
        drafted(tool_template=ToolTemplate(lacks=("tools",), instead="qwen3")),
        Grade.WARN,
        "tool_template",
        "doesn’t tell the model which tools it has",
    ),
    (
        drafted(tool_template=ToolTemplate(readable=False)),
        Grade.STOP,
        "tool_template",
        "can’t parse the model’s tool calls",
    ),
    (
        drafted(tool_template=ToolTemplate(keeps_prefix=False, in_trl=False)),
        Grade.STOP,
        "tool_template",
        "changes earlier messages when later ones are added",
    ),
    (drafted(replace(AGENTS, parts=(CALCULATE,))), Grade.STOP, "driven_by", "Agents bring their own tools"),
    (
        drafted(EpisodeSpec(gateway=GatewaySpec(open_beyond_loopback=True))),
        Grade.WARN,
        "open_beyond_loopback",
        "without encryption",
    ),
    (
        drafted(EpisodeSpec(gateway=GatewaySpec(open_beyond_loopback=True)), owner_administers=False),
        Grade.STOP,
        "open_beyond_loopback",
        "Only an admin may open",
    ),
    (drafted(ATROPOS), Grade.NOTE, "num_generations", "group_size = "),
    (
        drafted(EpisodeSpec(gateway=GatewaySpec("atropos", max_token_len=16))),
        Grade.STOP,
        "max_token_len",
        "a limit of 16 tokens",
    ),
]


@pytest.mark.parametrize(("draft", "grade", "field", "words"), CASES, ids=[case[3] for case in CASES])
def test_a_finding_is_said_at_its_field(draft: Draft, grade: Grade, field: str, words: str) -> None:
    finding = found(draft, field, words)
    assert finding is not None
    assert finding.grade is grade


def test_a_sound_environment_has_no_findings_beyond_those_of_the_run() -> None:
    without = {one.cause for one in preflight.check(drafted(None))}
    assert {one.cause for one in preflight.check(drafted(**TEMPLATE))} <= without


def test_a_template_that_can_not_show_tools_names_the_one_that_trl_has() -> None:
    finding = found(drafted(tool_template=MUTE), "tool_template", "doesn’t show")
    assert finding is not None
    assert [fix.values for fix in finding.fixes] == [{"tool_template": "qwen2_5"}]
    assert found(drafted(replace(TOOLS, chat_template="qwen2_5"), tool_template=MUTE), "tool_template", "") is None


def test_a_reward_on_tools_or_turns_needs_an_environment() -> None:
    rewards = (RewardSpec("found", "answer_in_results", per_turn=True), *(FINE.rewards or ()))
    for words in ("scores tool use, but the run has no tools", "scores each turn, but without an environment"):
        assert found(drafted(None, rewards=rewards), "reward_version", words) is not None
        assert found(drafted(rewards=rewards), "reward_version", words) is None


def test_what_runs_code_needs_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENTS, "calculator", replace(ENVIRONMENTS["calculator"], cost=Cost.SANDBOX))
    [box] = FINE.hosts
    bare = replace(box, sandbox=HostSandbox(reported=True, backend="", lacks=(), allowed=False))
    assert found(drafted(hosts=(bare,)), "host", "has no sandbox for the code that calculate runs") is not None
    assert FINE.hardware is not None
    assert need_of(FINE.hardware, (CALCULATE,)).sandbox


def test_a_host_without_the_packages_is_named_and_one_that_has_not_told_is_not() -> None:
    [box] = FINE.hosts
    assert found(drafted(ATROPOS, hosts=(replace(box, inventory={"packages": {}}),)), "host", "needs atroposlib")
    assert found(drafted(ATROPOS), "host", "needs atroposlib") is None


def test_results_beyond_the_length_count_for_memory_and_time() -> None:
    long = drafted(limits(count_outputs=False, output_tokens=500))
    assert long.hardware is not None
    counted, single = (settings_of(one, long.hardware).completion_tokens for one in (long, drafted(None)))
    assert counted - single == 2 * 500
    work = work_of(long)
    assert work is not None
    assert work.answers * TOOLS_S == 2.0
