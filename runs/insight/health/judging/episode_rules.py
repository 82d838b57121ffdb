"""Rules about episodes: tools that fail, are never called or are called uselessly, and truncated episodes."""

from runs.insight.health.config import Config
from runs.insight.health.judging.rule import DECAY, DIVERGENCE, OWN, HealthRule, share_rule
from workers.contract.run import gateway
from workers.contract.run.episodes import CALLS, CUT

GROUPS_MINUTES = 15.0
"""Time in which environments that request completions should complete a batch."""


def _no_episodes(config: Config) -> str:
    return "" if config.turn_limit else "Completions have one turn."


def _no_tools(config: Config) -> str:
    return "" if config.tools else "The run has no tools."


RULES: dict[str, HealthRule] = {
    "tools_failing": share_rule(
        title="Tool fails",
        about="Share of a tool's calls that fail, over 10 generations with 20 calls or more (the tool that fails most)",
        warning=0.5,
        bad=0.9,
        hold=30,
        source=f"The thresholds are {OWN}: wrong arguments are usual while a model learns to call, and become fewer.",
        means="{tool} fails in {value} of its calls: the model reads errors instead of results.",
        try_="Read failed calls. Wrong arguments: explain them in the tool’s description. Time-outs: check what it "
        "waits for. Not available: check the host.",
        metric="tools/{tool_name}/failed",
        unless=_no_episodes,
        follows=(*DIVERGENCE, "gibberish"),
        find="s.every=1&s.error=any&s.tool={tool_quoted}",
    ),
    "tools_unused": HealthRule(
        title="Tools are not used",
        about="Calls of tools per episode, mean over 20 generations",
        above=False,
        warning=0.02,
        hold=100,
        source=f"The threshold is {OWN}: one call in 50 episodes is chance, and after so many steps not a start.",
        means="The model hardly calls its tools: {value} calls per episode.",
        try_="Check whether the prompt says when to call. Reward correct calls, or raise the temperature: a model that "
        "never calls can't learn to.",
        solved="The model hardly calls its tools ({value} calls per episode), with the reward near its maximum.",
        metric=CALLS,
        unless=_no_tools,
        follows=(*DIVERGENCE, *DECAY),
        find="s.every=1&s.turns_to=1",
    ),
    "tool_spam": share_rule(
        title="Useless calls up to the limit",
        about="Calls as a share of the maximum that the limits allow, mean over 10 generations, while the reward has "
        "not risen for 60",
        warning=0.9,
        hold=30,
        source=f"The threshold is {OWN}: useful calls lead to an answer, and so stay below the limit.",
        means="Episodes have {calls} calls in {turns} turns, {value} of the maximum, and the reward doesn't rise.",
        try_="Read them. If calls themselves are rewarded, reward their results; subtract a little for each call.",
        solved="Episodes have {calls} calls in {turns} turns, {value} of the maximum, with the reward near its "
        "maximum.",
        metric=CALLS,
        unless=_no_tools,
        follows=("tools_failing", *DIVERGENCE),
        find="s.sort=-turn_count",
    ),
    "episodes_cut": share_rule(
        title="Episodes cut",
        about="Share of episodes cut by a limit of turns, time or length, mean over 10 generations",
        warning=0.5,
        bad=0.9,
        hold=30,
        source=f"The thresholds are {OWN}: a model that is new to its tools may use up all turns for a while.",
        means="{value} of the episodes are cut by a limit before they end, so their outcome can't be correct.",
        try_="See how they end. Out of turns: allow more, or state their number in the prompt. Out of time: use faster "
        "tools. Cut by length: {longer}, or shorten results.",
        metric=CUT,
        drawn=True,
        unless=_no_episodes,
        follows=("truncation", "tools_failing", "tool_spam", "length_cap", "repetition", "gibberish", "entropy_rise"),
        find="s.sort=-turn_count",
    ),
    "no_agents": HealthRule(
        title="No agent takes tasks",
        about="Minutes that the trainer has waited without an agent that has an open session",
        warning=3.0,
        bad=30.0,
        hold=0,
        calm=0,
        source=f"The thresholds are {OWN}: working agents take the next task within seconds.",
        means="The trainer has waited {waited} for its episodes, and no agent has had an open session for {quiet}.",
        try_="Start agents with the address and the key on this page. If they run, check the endpoint’s answers: 401 "
        "means a wrong key. A stop saves the last step’s checkpoint.",
        metric=gateway.WAITS,
        unless=lambda config: "" if config.driven_by == gateway.AGENTS else "No agents drive the run.",
    ),
    "no_groups": HealthRule(
        title="No environment sends groups",
        about="Minutes that the trainer has waited without a request from an environment; if environments do send "
        f"requests, only the minutes beyond the first {GROUPS_MINUTES:g}",
        warning=3.0,
        bad=30.0,
        hold=0,
        calm=0,
        source=f"The thresholds are {OWN}: working environments send requests within seconds, but some batches take "
        "long.",
        means="The trainer has waited {waited} for a batch of groups. {asked}",
        try_="Check the environment’s own log. API not reachable: it needs the API’s address on this page, from the "
        "run’s host. Groups of equal scores: environments drop them, so no batch fills up.",
        metric=gateway.WAITS,
        unless=lambda config: "" if config.driven_by == gateway.ATROPOS else "No environments of Atropos feed the run.",
    ),
}
