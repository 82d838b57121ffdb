"""Format rewards for tags and boxes around a completion's thoughts and its answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.rewards.extract import last_boxed
from workers.rewards.parameters import Params, param
from workers.rewards.reward import Example, Reward

MAX_TAGS = 12


def names(text: str) -> list[str]:
    """Split comma-separated names."""
    return [name for part in text.split(",") if (name := part.strip())]


def names_problem(text: str, *, none_is_fine: bool = False) -> str:
    """Return why a parameter of comma-separated tag names is invalid; "" if it is valid."""
    tags = names(text)
    if not tags and not none_is_fine:
        return "must name a tag"
    if len(set(tags)) < len(tags):
        return "must not name a tag twice"
    if len(tags) > MAX_TAGS:
        return f"must be at most {MAX_TAGS} names"
    if any(map(_tag_problem, tags)):
        return "must be names of letters, digits, - and _, with commas"
    return ""


def _tag_problem(tag: str) -> str:
    is_name = tag.replace("_", "").replace("-", "").isalnum()
    return "" if is_name else "must be a name of letters, digits, - and _"


@dataclass(frozen=True)
class ThinkPresentParams(Params):
    tag: str = param("think", "Name of the tag, without brackets.", rule=_tag_problem)
    opened_by_prompt: bool = param(
        False, "The chat template has already written the opening tag, so only the closing one is expected."
    )


@dataclass(frozen=True)
class ThinkTagsParams(ThinkPresentParams):
    needs_text_after: bool = param(True, "Something other than white space must follow the closing tag.")
    partial: bool = param(False, "Give each condition met its equal share instead of all or nothing.")


@dataclass(frozen=True)
class AnswerTagParams(Params):
    tag: str = param("answer", "Name of the tag, without brackets.", rule=_tag_problem)
    at_end: bool = param(False, "Nothing but white space may follow the closing tag.")
    partial: bool = param(False, "Give each condition met its equal share instead of all or nothing.")


@dataclass(frozen=True)
class SoftFormatParams(Params):
    tags: str = param(
        "think, answer", "Names of the tags in the order in which they should come, with commas.", rule=names_problem
    )
    opened_by_prompt: bool = param(False, "The chat template has already written the first opening tag.")
    nothing_outside: bool = param(False, "Text outside the tags costs one part.")


@dataclass(frozen=True)
class BoxedPresentParams(Params):
    once: bool = param(False, "Exactly one box; otherwise the last one counts.")


def think_present(completion: str, row: Mapping[str, Any], params: ThinkPresentParams) -> float:
    """Return 0 or 1. 1: an opening tag and, somewhere after it, a closing one. 0: not both. What stands in or around
    them doesn't matter: for the first steps of a model that has never seen the tags, before `think_tags` asks for
    more."""
    text = f"<{params.tag}>{completion}" if params.opened_by_prompt else completion
    opened = text.find(f"<{params.tag}>")
    return float(opened >= 0 and text.find(f"</{params.tag}>", opened) >= 0)


def think_tags(completion: str, row: Mapping[str, Any], params: ThinkTagsParams) -> float:
    """Return 0 to 1, only 0 and 1 unless `partial`. 1: one block of thought opens the completion, has something in it,
    and is followed by something. 0: any of that is missing. The format reward of DeepSeek-R1 (arXiv:2501.12948)."""
    text = f"<{params.tag}>{completion}" if params.opened_by_prompt else completion
    opened, closed = f"<{params.tag}>", f"</{params.tag}>"
    inside, after = _between(text, opened, closed)
    conditions = [
        text.lstrip().startswith(opened) and text.count(opened) == 1,
        text.count(closed) == 1,
        bool(inside.strip()),
    ]
    if params.needs_text_after:
        conditions.append(bool(after.strip()))
    return _share(conditions, params.partial)


def soft_format(completion: str, row: Mapping[str, Any], params: SoftFormatParams) -> float:
    """Return 0 to 1: the share of parts that are right. For each tag: opened once, closed once, something inside;
    between two tags: the second begins after the first has ended. 0: none of it, 1: all. While a format is being
    learned it gives a slope where an all-or-nothing reward gives every completion of a group the same 0."""
    tags = names(params.tags)
    text = f"<{tags[0]}>{completion}" if params.opened_by_prompt else completion
    conditions: list[bool] = []
    outside, ended = text, -1
    for number, tag in enumerate(tags):
        opened, closed = f"<{tag}>", f"</{tag}>"
        start = text.find(opened)
        end = text.find(closed, start + len(opened)) if start >= 0 else -1
        inside = text[start + len(opened) : end] if end >= 0 else ""
        conditions += [text.count(opened) == 1, text.count(closed) == 1, bool(inside.strip())]
        if number:
            conditions.append(0 <= ended <= start)
        ended = end
        if params.nothing_outside and end >= 0:
            outside = outside.replace(f"{opened}{inside}{closed}", "", 1)
    if params.nothing_outside:
        conditions.append(not outside.strip())
    return _share(conditions, partial=True)


def answer_tag(completion: str, row: Mapping[str, Any], params: AnswerTagParams) -> float:
    """Return 0 to 1, only 0 and 1 unless `partial`. 1: exactly one answer tag with something in it. 0: none, several,
    or an empty one. So that rewards on the answer find it."""
    opened, closed = f"<{params.tag}>", f"</{params.tag}>"
    inside, after = _between(completion, opened, closed)
    conditions = [completion.count(opened) == 1, completion.count(closed) == 1, bool(inside.strip())]
    if params.at_end:
        conditions.append(closed in completion and not after.strip())
    return _share(conditions, params.partial)


def boxed_present(completion: str, row: Mapping[str, Any], params: BoxedPresentParams) -> float:
    r"""Return 0 or 1. 1: a complete \boxed{…} with something in it. 0: none, an empty one, or one that never closes.
    Beside a reward on mathematics, whose answers are looked for in the box."""
    if params.once and completion.count("\\boxed{") != 1:
        return 0.0
    return float(bool((last_boxed(completion) or "").strip()))


def _between(text: str, opened: str, closed: str) -> tuple[str, str]:
    """Return (the content of the first pair, the text after it); both empty if there is no pair."""
    _, separator, rest = text.partition(opened)
    if not separator:
        return "", ""
    inside, separator, after = rest.partition(closed)
    return (inside, after) if separator else ("", "")


def _share(conditions: list[bool], partial: bool) -> float:
    return sum(conditions) / len(conditions) if partial else float(all(conditions))


REWARDS = (
    Reward(
        key="think_present",
        title="Think block, loose",
        help="1 when there is a <think> with a </think> after it, whatever else is there.",
        function=think_present,
        params=ThinkPresentParams,
        low="The opening tag is missing, or no closing tag follows it.",
        high="Both tags are there, in this order.",
        use="At the very beginning, for a model that doesn't know the tags; then “Think block, strict”.",
        examples=(
            Example("Well: <think>3 + 4</think> 7", 1.0, why="Both tags are there; text before them doesn't matter."),
            Example("3 + 4 = 7</think>", 0.0, why="Nothing opens."),
        ),
    ),
    Reward(
        key="think_tags",
        title="Think block, strict",
        help="1 when the completion opens with one <think>…</think> block with something in it, followed by more text.",
        function=think_tags,
        params=ThinkTagsParams,
        low="One of these is missing: it opens with the tag, closes it once, has text in it and after it.",
        high="One block of thought, then an answer.",
        use="With a small weight beside a reward on the answer, so that thought and answer stay apart.",
        examples=(
            Example("<think>3 + 4 makes 7.</think>The answer is 7.", 1.0, why="A thought, then an answer."),
            Example("Well, <think>3 + 4</think>7", 0.0, why="It doesn't open with the tag."),
            Example("<think>3 + 4 is", 0.25, params={"partial": True}, why="Of four conditions one holds: it opens."),
        ),
    ),
    Reward(
        key="soft_format",
        title="Soft format",
        help="The share of the format's parts that are right: tags opened, closed, filled, and in order.",
        function=soft_format,
        params=SoftFormatParams,
        low="Nothing of the format is there.",
        high="Every tag is opened once, closed once, filled, and in order.",
        use="While the format is learned: half of it earns half, so a group's completions differ from the first step.",
        examples=(
            Example("<think>3 + 4</think><answer>7</answer>", 1.0, why="All seven parts are right."),
            Example("<think>3 + 4</think>It is 7.", 3 / 7, why="Three of seven: <think> is opened, closed and filled."),
            Example("It is 7.", 0.0, why="Nothing of it."),
        ),
    ),
    Reward(
        key="answer_tag",
        title="Tagged answer",
        help="1 when there is exactly one <answer>…</answer> with something in it.",
        function=answer_tag,
        params=AnswerTagParams,
        low="No complete tag, more than one, or nothing in it.",
        high="Exactly one, with an answer in it.",
        use="Beside a reward that looks for the answer in this tag.",
        examples=(
            Example("So it is <answer>7</answer>.", 1.0, why="One tag with something in it."),
            Example("<answer>7</answer> or <answer>8</answer>", 0.0, why="Two answers are none."),
        ),
    ),
    Reward(
        key="boxed_present",
        title="Boxed answer",
        help=r"1 when there is a complete \boxed{…} with something in it.",
        function=boxed_present,
        params=BoxedPresentParams,
        low="No box, an empty one, or one that never closes.",
        high="A box with an answer in it.",
        use="Beside a reward on mathematics, for models that were taught to box their answer.",
        examples=(
            Example(r"So it is \boxed{\frac{3}{4}}.", 1.0, why="The box is complete, with braces inside it."),
            Example(r"So it is \boxed{7", 0.0, why="It never closes."),
        ),
    ),
)
