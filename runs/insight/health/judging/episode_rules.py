"""Health rules about episodes: tools that fail, are never called or are called uselessly, and truncated episodes."""

from runs.insight.health.config import Config
from runs.insight.health.judging.rule import DECAY, DIVERGENCE, OWN, HealthRule, share_rule
from workers.contract.run import gateway
from workers.contract.run.episodes import CALLS, EPISODES_CUT

GROUPS_MINUTES = 15.0
"""Minutes within which environments that request completions should complete a batch."""


def _no_episodes(config: Config) -> str:
    return "" if config.turn_limit else "Completions have one turn."


def _no_tools(config: Config) -> str:
    return "" if config.tools else "The run has no tools."


RULES: dict[str, HealthRule] = {
    "tools_failing": share_rule(
        title="Tool fails",
        about="Share of a tool's calls that fail, over 10 generations with at least 20 calls (for the tool that fails "
        "most often), unless the share is falling",
        warning=0.3,
        bad=0.9,
        hold=30,
        source=f"The thresholds are {OWN}: wrong arguments are usual while a model learns to call, and become rarer.",
        means="{tool} fails in {value} of its calls: the model reads errors instead of results.",
        try_="Read failed calls. If arguments are wrong, explain them in the tool’s description. If calls time out, "
        "check what the tool is waiting for. If the tool is not available, check the host.",
        metric="tools/{tool_name}/failed",
        unless=_no_episodes,
        follows=(*DIVERGENCE, "gibberish"),
        find="s.every=1&s.error=any&s.tool={tool_quoted}",
    ),
    "tools_unused": HealthRule(
        title="Tools are not used",
        about="Tool calls per episode, mean over 20 generations",
        above=False,
        warning=0.02,
        hold=100,
        source=f"The threshold is {OWN}: one call in 50 episodes is chance, and no sign of progress after so many "
        "steps.",
        means="The model hardly calls its tools: {value} calls per episode.",
        try_="Check whether the prompt says when to call tools. Reward correct calls, or raise the temperature: a "
        "model that never calls its tools can't learn to.",
        solved="The model hardly calls its tools ({value} calls per episode), with the reward near its maximum.",
        metric=CALLS,
        unless=_no_tools,
        follows=(*DIVERGENCE, *DECAY),
        find="s.every=1&s.turns_to=1",
    ),
    "tool_spam": share_rule(
        title="Useless calls up to the limit",
        about="Calls as a share of the maximum that the limits allow, mean over 10 generations, if the reward has not "
        "risen for 60 generations",
        warning=0.9,
        hold=30,
        source=f"The threshold is {OWN}: useful calls lead to an answer, so they stay below the limit.",
        means="Episodes have {calls} calls in {turns} turns, {value} of the maximum, and the reward isn't rising.",
        try_="Read these episodes. If calls themselves are rewarded, reward their results instead, and subtract a "
        "little for each call.",
        solved="Episodes have {calls} calls in {turns} turns, {value} of the maximum, with the reward near its "
        "maximum.",
        metric=CALLS,
        unless=_no_tools,
        follows=("tools_failing", *DIVERGENCE),
        find="s.sort=-turn_count",
    ),
    "episodes_cut": share_rule(
        title="Episodes truncated",
        about="Share of episodes truncated by a limit on turns, time or length, mean over 10 generations",
        warning=0.5,
        bad=0.9,
        hold=30,
        source=f"The thresholds are {OWN}: a model that is new to its tools may use up all turns for a while.",
        means="{value} of the episodes reach a limit before they end, so their outcome can't be correct.",
        try_="Check how episodes end. If they run out of turns, allow more, or state the limit in the prompt. If they "
        "run out of time, use faster tools. If they are too long, {longer}, or shorten results.",
        metric=EPISODES_CUT,
        drawn=True,
        unless=_no_episodes,
        follows=("truncation", "tools_failing", "tool_spam", "length_cap", "repetition", "gibberish", "entropy_rise"),
        find="s.sort=-turn_count",
    ),
    "no_agents": HealthRule(
        title="No agent takes tasks",
        about="Minutes that the trainer has waited without any agent having an open session",
        warning=3.0,
        bad=30.0,
        hold=0,
        calm=0,
        source=f"The thresholds are {OWN}: working agents take the next task within seconds.",
        means="The trainer has waited {waited} for its episodes, and no agent has had an open session for {quiet}.",
        try_="Start agents with the address and the key on this page. If they are running, check the endpoint’s "
        "responses: 401 means that the key is wrong. Stopping the run saves a checkpoint of the last step.",
        metric=gateway.WAITS_S,
        unless=lambda config: "" if config.driven_by == gateway.AGENTS else "No agents drive the run.",
    ),
    "no_groups": HealthRule(
        title="No environment sends groups",
        about="Minutes that the trainer has waited without a request from an environment; if environments do send "
        f"requests, only the minutes after the first {GROUPS_MINUTES:g}",
        warning=3.0,
        bad=30.0,
        hold=0,
        calm=0,
        source=f"The thresholds are {OWN}: working environments send requests within seconds, but some batches take "
        "long.",
        means="The trainer has waited {waited} for a batch of groups. {asked}",
        try_="Check the environment’s log. If the API is unreachable, use the API’s address on this page, from the "
        "run’s host. If all scores in a group are equal, environments drop the group, so no batch fills up.",
        metric=gateway.WAITS_S,
        unless=lambda config: "" if config.driven_by == gateway.ATROPOS else "No Atropos environments feed the run.",
    ),
}
