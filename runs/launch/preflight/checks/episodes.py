"""Checks of a run's environment: its parts, their needs on the host, limits, rewards and chat template."""

import re
from collections import Counter
from collections.abc import Iterator

from runs.engine.gateway.endpoint import REFUSED
from runs.launch.preflight.checks.packages import not_installed
from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Fix, note, stop, warn
from workers.contract.run.episodes import EpisodeSpec, PartSpec
from workers.contract.run.gateway import ATROPOS, ATROPOSLIB
from workers.environments.entry import EntryKind
from workers.environments.library import LIBRARY
from workers.rewards.library import LIBRARY as REWARDS
from workers.rewards.reward import RewardGroup

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""Tool names that every chat template and parser accepts."""
MIN_TURN = 16
"""Fewest tokens of a call."""
WITHOUT = Fix("Use no environment", {"environment": ""})


def check(draft: Draft) -> Iterator[Finding]:
    spec = draft.episodes
    if spec is None:
        return
    if spec.gateway is not None:
        yield from _gateway(draft, spec)
        return
    yield from _parts(spec)
    if draft.corpus_problem:
        fix = "Choose one under Environments; a new corpus can be searched once it has been made."
        yield stop("environment", draft.corpus_problem, fix)
    yield from _packages(draft, spec)
    yield from _limits(draft, spec)
    yield from _chat(draft, spec)


def has_tools(spec: EpisodeSpec) -> bool:
    """Return True if the model may call tools; only a game has none."""
    return any(_kind(part) not in (None, EntryKind.GAME) for part in spec.parts)


def _kind(part: PartSpec) -> EntryKind | None:
    entry = LIBRARY.get(part.function)
    return entry.kind if entry else None


# --- parts ------------------------------------------------------------------------------------------------------------


def _parts(spec: EpisodeSpec) -> Iterator[Finding]:
    if not spec.parts:
        yield stop("environment", f"{spec.name} has no tools and no game.", "Add one under Environments.", WITHOUT)
    for name, count in Counter(part.name for part in spec.parts).items():
        if count > 1:
            yield stop("environment", f"{count} parts of {spec.name} are called {name}.", "Give each its own name.")
        if not _NAME.fullmatch(name):
            cause = f"{name!r} can't be a tool's name: use letters, digits, _ and -, at most 64, without a digit first."
            yield stop("environment", cause, "Rename it under Environments.")
    played = [part.name for part in spec.parts if _kind(part) in (EntryKind.GAME, EntryKind.SERVER)]
    if len(played) > 1:
        cause = f"{' and '.join(played)} can't be played at once: an environment has one game or server."
        yield stop("environment", cause, "Take one of them out.")
    for part in spec.parts:
        entry = LIBRARY.get(part.function)
        if entry is None:
            yield stop("environment", f"{part.name}: this version has no {part.function}.", "Replace it.")
            continue
        for problem in entry.check(part.params):
            yield stop("environment", f"{part.name}: {problem}.", "Correct it under Environments.")


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
            "With one turn the model never reads what a tool has answered.",
            "Allow two turns or more.",
            Fix("2 turns", {"episode_turns": "2"}),
        )
    if limits.call_s > limits.episode_s:
        cause = f"A call may take {limits.call_s:g} s, and the whole episode only {limits.episode_s:g} s."
        yield warn("episode_call_s", cause, "Shorten the call, or lengthen the episode.")
    if not isinstance(length, int) or not limits.count_outputs or limits.turns < 2:
        return
    needed = (limits.turns - 1) * (limits.output_tokens if has_tools(spec) else 0) + limits.turns * MIN_TURN
    if needed <= length:
        return
    apart = Fix("Don’t count results", {"episode_count_outputs": "false"})
    longer = Fix(f"Set it to {needed}", {"max_completion_length": str(needed)})
    yield warn(
        "max_completion_length",
        f"{limits.turns} turns with results of up to {limits.output_tokens:,} tokens take {needed:,} tokens, and a "
        f"completion has {length:,} with its results: episodes will be cut before their last turn.",
        "Lengthen the completions, allow fewer turns or shorter results, or don’t count results as length.",
        *((longer, apart) if has_tools(spec) else (longer,)),
    )


# --- rewards ----------------------------------------------------------------------------------------------------------


def check_rewards(draft: Draft) -> Iterator[Finding]:
    spec = draft.episodes
    for reward in draft.every_reward:
        entry = REWARDS.get(reward.function)
        at = "reward_version" if reward in (draft.rewards or ()) else "eval_reward_version"
        if reward.per_turn and spec is None:
            cause = f"{reward.name} scores each turn, and without an environment a completion has only one."
            yield warn(at, cause, "Choose an environment, or let it score the whole completion.")
        if entry is None or entry.group is not RewardGroup.TOOLS:
            continue
        if spec is None:
            cause = (
                f"{reward.name} scores tool use, and the run has no tools: a completion is one turn without results."
            )
            yield warn(at, cause, "Choose an environment with tools, or use a reward on the text itself.")
        elif spec.gateway is None and not has_tools(spec):
            yield warn(at, f"{reward.name} scores tool use, and {spec.name} has no tools.", "Use another reward.")


# --- the chat template ------------------------------------------------------------------------------------------------


def _chat(draft: Draft, spec: EpisodeSpec) -> Iterator[Finding]:
    if draft.data and draft.data.ready and not draft.data.chat:
        yield stop(
            "dataset_version",
            f"{draft.data.name} has plain text for prompts, and turns and tools are shown as a chat.",
            "Map the dataset’s prompt as chat messages, or use no environment.",
            WITHOUT,
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
        cause = "Whether the model’s chat template can show tools isn’t known: no host has brought its tokenizer."
        yield note("tool_template", cause, "The run ends before its first step if it can’t.")


def _tools_in_the_template(draft: Draft) -> Iterator[Finding]:
    template = draft.tool_template
    if template is None or template.works:
        return
    if template.lacks == ("tools",) and template.readable:
        cause = "The model’s chat template doesn’t tell the model which tools it has: it shows calls and results only."
        yield warn("tool_template", cause, *_instead(template.instead, "Say it in a system message"))
        return
    if template.problem:
        cause = f"The model can’t be shown tools. {template.problem}"
    elif template.lacks:
        cause = f"The model’s chat template doesn’t show {' and '.join(template.lacks)}."
    elif not template.readable:
        cause = "TRL doesn’t know the model’s chat template, so that the calls that the model writes can’t be read."
    else:
        cause = (
            "The model’s chat template changes earlier messages once later ones follow, and TRL has no other for it."
        )
    yield stop("tool_template", cause, *_instead(template.instead, "Use a model whose template can"))


def _instead(name: str, otherwise: str) -> tuple[str, *tuple[Fix, ...]]:
    if not name:
        return (f"{otherwise}: TRL has no template in this one’s special tokens.",)
    sentence = f"TRL’s {name} is written in the same special tokens and shows them."
    return sentence, Fix(f"Use {name}", {"tool_template": name})


# --- agents -----------------------------------------------------------------------------------------------------------


def _gateway(draft: Draft, spec: EpisodeSpec) -> Iterator[Finding]:
    gateway = spec.gateway
    if gateway is None:
        return
    if spec.parts:
        yield stop(
            "driven_by",
            "Agents bring their own tools: those of the environment would never be called.",
            "Choose one of the two.",
            WITHOUT,
            Fix("Let the run drive", {"driven_by": ""}),
        )
    if gateway.open_beyond_loopback and not draft.owner_administers:
        yield stop(
            "open_beyond_loopback",
            f"{REFUSED}: the host would listen to the network, without encryption.",
            "Reach it through a tunnel to the host, or ask an admin to launch the run.",
            Fix("Keep it on its host", {"open_beyond_loopback": ""}),
        )
    elif gateway.open_beyond_loopback:
        cause = "The endpoint listens on every address of the host, without encryption."
        yield warn("open_beyond_loopback", cause, "Keep it behind a firewall, or reach it through a tunnel.")
    if gateway.kind == ATROPOS:
        yield from _atropos(draft, gateway.max_token_len)


def _atropos(draft: Draft, max_token_len: int) -> Iterator[Finding]:
    yield from not_installed(draft, ATROPOSLIB, "The Atropos API", group="atropos")
    group = draft.value("num_generations")
    cause = f"Start the Atropos environments with group_size = {group}: groups of another size are refused."
    yield note("num_generations", cause, "They bring their own prompts and scores; the dataset’s prompts aren’t used.")
    if isinstance(group, int) and group & (group - 1):
        cause = f"Atropos fills a batch from groups whose sizes divide it, and {group} is no power of two."
        yield warn("num_generations", cause, "Use 4, 8 or 16.")
    length = draft.value("max_completion_length")
    if isinstance(length, int) and length >= max_token_len:
        yield stop(
            "max_token_len",
            f"Atropos gets a limit of {max_token_len:,} tokens for prompt and completion, and completions alone may "
            f"have {length:,}.",
            "Raise it above the completion length and the longest prompt.",
            Fix(f"Set it to {2 * length}", {"max_token_len": str(2 * length)}),
        )
