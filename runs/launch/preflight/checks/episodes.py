"""Checks of a run's environment: its parts, their needs on the host, limits, rewards and chat template."""

import re
from collections import Counter
from collections.abc import Iterator

from controlplane.catalogue.versioned import checking
from controlplane.platform.confined.limits import NotFinished
from runs.engine.gateway.endpoint import ADMIN_ONLY
from runs.launch.preflight.checks.packages import not_installed
from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Fix, note, stop, unjudged, warn
from workers.contract.run.episodes import EpisodeSpec, PartSpec
from workers.contract.run.gateway import ATROPOS, ATROPOSLIB
from workers.environments.entry import EntryKind
from workers.environments.library import LIBRARY
from workers.rewards.library import LIBRARY as REWARDS
from workers.rewards.reward import RewardGroup

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""Pattern of the tool names that every chat template and parser accepts."""
MIN_TURN_TOKENS = 16
"""Minimum number of tokens of a turn with a tool call."""
USE_NO_ENVIRONMENT = Fix("Use no environment", {"environment": ""})


def check(draft: Draft) -> Iterator[Finding]:
    spec = draft.episodes
    if spec is None:
        return
    if spec.gateway is not None:
        yield from _gateway(draft, spec)
        return
    yield from _parts(spec)
    if draft.corpus_problem:
        fix = "Choose another corpus under Environments; a new corpus can be searched once it has been built."
        yield stop("environment", draft.corpus_problem, fix)
    yield from _packages(draft, spec)
    yield from _limits(draft, spec)
    yield from _chat(draft, spec)


def has_tools(spec: EpisodeSpec) -> bool:
    """Return whether the environment has tools that the model may call; one that is only a game has none."""
    return any(_kind(part) not in (None, EntryKind.GAME) for part in spec.parts)


def _kind(part: PartSpec) -> EntryKind | None:
    entry = LIBRARY.get(part.function)
    return entry.kind if entry else None


# --- parts ------------------------------------------------------------------------------------------------------------


def _parts(spec: EpisodeSpec) -> Iterator[Finding]:
    if not spec.parts:
        yield stop(
            "environment", f"{spec.name} has no tools and no game.", "Add one under Environments.", USE_NO_ENVIRONMENT
        )
    for name, count in Counter(part.name for part in spec.parts).items():
        if count > 1:
            yield stop("environment", f"{count} parts of {spec.name} are called {name}.", "Give each a different name.")
        if not _NAME.fullmatch(name):
            cause = f"{name!r} isn't a valid tool name: use at most 64 letters, digits, _ and -, first a letter or _."
            yield stop("environment", cause, "Rename it under Environments.")
    played_parts = [part.name for part in spec.parts if _kind(part) in (EntryKind.GAME, EntryKind.SERVER)]
    if len(played_parts) > 1:
        cause = f"{' and '.join(played_parts)} can't be combined: an environment can have only one game or server."
        yield stop("environment", cause, "Remove one of them.")
    for part in spec.parts:
        entry = LIBRARY.get(part.function)
        if entry is None:
            yield stop("environment", f"{part.name}: this version has no {part.function}.", "Replace this part.")
            continue
        try:
            for problem in checking.problems(entry, part.params):
                yield stop("environment", f"{part.name}: {problem}.", "Correct it under Environments.")
        except NotFinished as error:
            yield unjudged("environment", part.name, error)


def _packages(draft: Draft, spec: EpisodeSpec) -> Iterator[Finding]:
    part_names = {
        name: part.name for part in spec.parts if (name := str(getattr(LIBRARY.get(part.function), "package", "")))
    }
    for package, part in part_names.items():
        yield from not_installed(draft, package, part, group="environments")


# --- limits -----------------------------------------------------------------------------------------------------------


def _limits(draft: Draft, spec: EpisodeSpec) -> Iterator[Finding]:
    limits, length = spec.limits, draft.value("max_completion_length")
    if limits.turns < 2 and has_tools(spec):
        yield warn(
            "episode_turns",
            "With only one turn, the model never reads a tool's result.",
            "Allow at least two turns.",
            Fix("2 turns", {"episode_turns": "2"}),
        )
    if limits.call_s > limits.episode_s:
        cause = f"A call may take {limits.call_s:g} s, but the whole episode only {limits.episode_s:g} s."
        yield warn("episode_call_s", cause, "Lower the seconds per call, or raise the seconds per episode.")
    if not isinstance(length, int) or not limits.count_outputs or limits.turns < 2:
        return
    minimum = (limits.turns - 1) * (limits.output_tokens if has_tools(spec) else 0) + limits.turns * MIN_TURN_TOKENS
    if minimum <= length:
        return
    without_results = Fix("Don’t count results", {"episode_count_outputs": "false"})
    length_fix = Fix(f"Set it to {minimum}", {"max_completion_length": str(minimum)})
    yield warn(
        "max_completion_length",
        f"{limits.turns} turns with results of up to {limits.output_tokens:,} tokens need {minimum:,} tokens, but a "
        f"completion has {length:,}, including results: episodes will be truncated before their last turn.",
        "Lengthen the completions, allow fewer turns or shorter results, or don’t count results as length.",
        *((length_fix, without_results) if has_tools(spec) else (length_fix,)),
    )


# --- rewards ----------------------------------------------------------------------------------------------------------


def check_rewards(draft: Draft) -> Iterator[Finding]:
    spec = draft.episodes
    for reward in draft.every_reward:
        entry = REWARDS.get(reward.function)
        field = "reward_version" if reward in (draft.rewards or ()) else "eval_reward_version"
        if reward.per_turn and spec is None:
            cause = f"{reward.name} scores each turn, but without an environment a completion has only one."
            yield warn(field, cause, "Choose an environment, or let the reward score whole completions.")
        if entry is None or entry.group is not RewardGroup.TOOLS:
            continue
        if spec is None:
            cause = (
                f"{reward.name} scores tool use, but the run has no tools: a completion is one turn without results."
            )
            yield warn(field, cause, "Choose an environment with tools, or a reward that doesn't need them.")
        elif spec.gateway is None and not has_tools(spec):
            yield warn(field, f"{reward.name} scores tool use, but {spec.name} has no tools.", "Use another reward.")


# --- the chat template ------------------------------------------------------------------------------------------------


def _chat(draft: Draft, spec: EpisodeSpec) -> Iterator[Finding]:
    if draft.data and draft.data.ready and not draft.data.chat:
        yield stop(
            "dataset_version",
            f"{draft.data.name} has plain-text prompts, but turns and tools are shown as a chat.",
            "Map the dataset’s prompt as chat messages, or use no environment.",
            USE_NO_ENVIRONMENT,
        )
    if spec.chat_template:
        return
    if (draft.inspection or {}).get("chat_template") is False:
        yield stop(
            "tool_template",
            "The model’s tokenizer has no chat template to show turns and tools.",
            "Use an instruction-tuned model, or choose one of TRL’s templates whose special tokens the model knows.",
        )
    elif draft.tool_template is not None and has_tools(spec):
        yield from _tools_in_the_template(draft)
    elif (draft.inspection or {}).get("ok") and has_tools(spec):
        cause = "No host has sent the model’s tokenizer, so it isn’t known whether its chat template can show tools."
        yield note("tool_template", cause, "If it can’t, the run ends before its first step.")


def _tools_in_the_template(draft: Draft) -> Iterator[Finding]:
    template = draft.tool_template
    if template is None or template.works:
        return
    if template.lacks == ("tools",) and template.readable:
        cause = "The model’s chat template shows only calls and results, and doesn’t tell the model which tools it has."
        yield warn("tool_template", cause, *_suggest_instead(template.instead, "List the tools in a system message"))
        return
    if template.problem:
        cause = f"The model can’t be shown tools. {template.problem}"
    elif template.lacks:
        cause = f"The model’s chat template doesn’t show {' and '.join(template.lacks)}."
    elif not template.readable:
        cause = "TRL doesn’t know the model’s chat template, so it can’t parse the model’s tool calls."
    else:
        cause = (
            "The model’s chat template changes earlier messages when later ones are added, and TRL has no replacement."
        )
    yield stop("tool_template", cause, *_suggest_instead(template.instead, "Use a model whose template supports tools"))


def _suggest_instead(name: str, alternative: str) -> tuple[str, *tuple[Fix, ...]]:
    if not name:
        return (f"{alternative}: TRL has no template with the same special tokens.",)
    sentence = f"TRL’s {name} uses the same special tokens and shows them."
    return sentence, Fix(f"Use {name}", {"tool_template": name})


# --- agents -----------------------------------------------------------------------------------------------------------


def _gateway(draft: Draft, spec: EpisodeSpec) -> Iterator[Finding]:
    gateway = spec.gateway
    if gateway is None:
        return
    if spec.parts:
        yield stop(
            "driven_by",
            "Agents bring their own tools, so those of the environment would never be called.",
            "Choose either agents or an environment.",
            USE_NO_ENVIRONMENT,
            Fix("Let the run drive the episodes", {"driven_by": ""}),
        )
    if gateway.open_beyond_loopback and not draft.owner_administers:
        yield stop(
            "open_beyond_loopback",
            f"{ADMIN_ONLY}: the host would listen on the network without encryption.",
            "Reach the endpoint through a tunnel to the host, or ask an admin to launch the run.",
            Fix("Listen only on the host", {"open_beyond_loopback": ""}),
        )
    elif gateway.open_beyond_loopback:
        cause = "The endpoint listens on every address of the host without encryption."
        yield warn("open_beyond_loopback", cause, "Keep the endpoint behind a firewall, or reach it through a tunnel.")
    if gateway.kind == ATROPOS:
        yield from _atropos(draft, gateway.max_token_len)


def _atropos(draft: Draft, max_token_len: int) -> Iterator[Finding]:
    yield from not_installed(draft, ATROPOSLIB, "The Atropos API", group="atropos")
    group = draft.value("num_generations")
    cause = f"Start the Atropos environments with group_size = {group}; groups of any other size are refused."
    yield note(
        "num_generations",
        cause,
        "Their own prompts and scores are used, not those of the dataset.",
    )
    if isinstance(group, int) and group & (group - 1):
        cause = f"Atropos fills a batch from groups whose sizes divide it, and {group} is not a power of two."
        yield warn("num_generations", cause, "Use 4, 8 or 16.")
    length = draft.value("max_completion_length")
    if isinstance(length, int) and length >= max_token_len:
        yield stop(
            "max_token_len",
            f"Atropos has a limit of {max_token_len:,} tokens for prompt and completion, but completions alone may "
            f"have {length:,}.",
            "Raise the limit above the completion length plus the longest prompt.",
            Fix(f"Set it to {2 * length}", {"max_token_len": str(2 * length)}),
        )
