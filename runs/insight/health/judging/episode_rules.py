"""Rules about episodes: tools that fail, that nobody calls or that are called for nothing, and episodes cut."""

from __future__ import annotations

from runs.insight.health.config import Config
from runs.insight.health.judging.rule import DECAY, DIVERGENCE, OWN, HealthRule
from workers.contract.run import gateway
from workers.contract.run.episodes import CALLS, CUT

GROUPS_MINUTES = 15.0
"""Within which environments that ask for completions complete a batch."""


def _no_episodes(config: Config) -> str:
    return "" if config.turn_limit else "Completions have one turn."


def _no_tools(config: Config) -> str:
    return "" if config.tools else "The run has no tools."


def _no_agents(config: Config) -> str:
    return "" if config.driven_by == gateway.AGENTS else "No agents drive the run."


def _no_atropos(config: Config) -> str:
    return "" if config.driven_by == gateway.ATROPOS else "No environments of Atropos feed the run."


RULES: tuple[HealthRule, ...] = (
    HealthRule(
        id="tools_failing",
        title="Tool fails",
        about="Share of a tool's calls that fail, over 10 generations with 20 calls or more (the tool that fails most)",
        warning=0.5,
        bad=0.9,
        hold=30,
        format="percent",
        most=1.0,
        source=f"The thresholds are {OWN}: wrong arguments are usual while a model learns to call, and become fewer.",
        means="{tool} fails in {value} of its calls: the model reads errors in place of results.",
        try_="Read failed calls. Wrong arguments: say in its description what they are. Time-outs: see what it waits "
        "for. Not available: see the host.",
        metric="tools/{tool_name}/failed",
        unless=_no_episodes,
        follows=(*DIVERGENCE, "gibberish"),
        find="s.every=1&s.error=any&s.tool={tool_quoted}",
    ),
    HealthRule(
        id="tools_unused",
        title="Tools are not used",
        about="Calls of tools per episode, mean over 20 generations",
        above=False,
        warning=0.02,
        hold=100,
        source=f"The threshold is {OWN}: one call in 50 episodes is chance, and after so many steps not a beginning.",
        means="The model hardly calls its tools: {value} calls per episode.",
        try_="Look at the prompt: does it say when to call? Reward a right call, or raise the temperature; a model "
        "that never calls can't learn to.",
        solved="The model hardly calls its tools ({value} calls per episode), with the reward near its highest.",
        metric=CALLS,
        unless=_no_tools,
        follows=(*DIVERGENCE, *DECAY),
        find="s.every=1&s.turns_to=1",
    ),
    HealthRule(
        id="tool_spam",
        title="Calls at the limit for nothing",
        about="Calls as a share of the most that the limits allow, mean over 10 generations, while the reward has not "
        "risen for 60",
        warning=0.9,
        hold=30,
        format="percent",
        most=1.0,
        source=f"The threshold is {OWN}: work that needs calls ends with an answer, and so stays below the limit.",
        means="Episodes have {calls} calls in {turns} turns, {value} of what is allowed, and the reward doesn't rise.",
        try_="Read them. If calls are rewarded by themselves, reward what they find; take a little off for each call.",
        solved="Episodes have {calls} calls in {turns} turns, {value} of what is allowed, with the reward near its "
        "highest.",
        metric=CALLS,
        unless=_no_tools,
        follows=("tools_failing", *DIVERGENCE),
        find="s.sort=-turn_count",
    ),
    HealthRule(
        id="episodes_cut",
        title="Episodes cut",
        about="Share of episodes that a limit ended (of turns, time or length), mean over 10 generations",
        warning=0.5,
        bad=0.9,
        hold=30,
        format="percent",
        most=1.0,
        source=f"The thresholds are {OWN}: a model that doesn't know its tools yet may spend all turns for a while.",
        means="{value} of the episodes are cut by a limit before they end: their outcome can't be right.",
        try_="See how they end. Out of turns: more turns, or say how many there are. Out of time: faster tools. Cut by "
        "length: {longer}, or shorter results.",
        metric=CUT,
        drawn=True,
        unless=_no_episodes,
        follows=("truncation", "tools_failing", "tool_spam", "length_cap", "repetition", "gibberish", "entropy_rise"),
        find="s.sort=-turn_count",
    ),
    HealthRule(
        id="no_agents",
        title="No agent takes tasks",
        about="Minutes for which the trainer has waited by now without an agent that has a session open",
        warning=3.0,
        bad=30.0,
        hold=0,
        calm=0,
        source=f"The thresholds are {OWN}: agents that work take the next task within seconds.",
        means="The trainer has waited {waited} for its episodes, and for {quiet} no agent has had a session open.",
        try_="Start agents, with the address and the key that this page shows. If they run, see what the endpoint "
        "answers them: 401 means another key. A stop saves the last step’s checkpoint.",
        metric=gateway.WAITS,
        unless=_no_agents,
    ),
    HealthRule(
        id="no_groups",
        title="No environment sends groups",
        about="Minutes for which the trainer has waited by now without a request from an environment; where they do "
        f"ask, those of the wait beyond the first {GROUPS_MINUTES:g}",
        warning=3.0,
        bad=30.0,
        hold=0,
        calm=0,
        source=f"The thresholds are {OWN}: environments that work ask within seconds, and some take long for a batch.",
        means="The trainer has waited {waited} for a batch of groups. {asked}",
        try_="See the environment’s own log. API not reachable: it needs the address of the API that this page shows, "
        "on the run’s host. Groups of equal scores: environments leave them out, so no batch fills.",
        metric=gateway.WAITS,
        unless=_no_atropos,
    ),
)
