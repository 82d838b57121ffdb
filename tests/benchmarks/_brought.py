"""Small files in formats that people bring, each with the mapping to propose, the first row, or the problem to tell."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.checking import check_file
from controlplane.catalogue.datasets.reader.versions import import_rows

NUMBERS = range(1, 7)


@dataclass(frozen=True)
class Brought:
    """A file, the part of the mapping to propose, the first answer and prompt, and the kind of problem to tell."""

    name: str
    content: bytes
    mapping: dict[str, Any] = field(default_factory=dict)
    answer: str | None = None
    prompt: str = ""
    kind: str = ""


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def each(make: Any) -> bytes:
    return lines(*map(make, NUMBERS))


CASES = (
    Brought(
        "messages and a nested ground truth",
        each(
            lambda n: {
                "prompt": [user(f"Add {n} and 1")],
                "reward_model": {"style": "rule", "ground_truth": f"{n + 1}"},
                "extra_info": {"index": n, "answer": f"So #### {n + 1}"},
            }
        ),
        {"prompt": "prompt", "messages": True, "answer": "reward_model.ground_truth"},
        "2",
        "Add 1 and 1",
    ),
    Brought(
        "a ground truth in a JSON list of one",
        each(
            lambda n: {"prompt": [user(f"Add {n} and 2")], "reward_model": {"ground_truth": json.dumps([str(n + 2)])}}
        ),
        {"answer": "reward_model.ground_truth"},
        "3",
    ),
    Brought(
        "a ground truth in a JSON object",
        each(lambda n: {"prompt": f"Name day {n}", "verification_info": json.dumps({"ground_truth": f"day {n}"})}),
        {"prompt": "prompt", "answer": "verification_info.ground_truth"},
        "day 1",
    ),
    Brought(
        "aliases",
        each(lambda n: {"question": f"Who ran lap {n}?", "answer": {"value": f"Ann {n}", "aliases": [f"A. {n}"]}}),
        {"answer": "answer"},
        "Ann 1",
    ),
    Brought(
        "a list of answers",
        each(lambda n: {"question": f"Where is {n}?", "answers": {"text": [f"in {n}", "here"]}}),
        {"answer": "answers"},
        "in 1",
    ),
    Brought(
        "booleans", each(lambda n: {"question": f"Is {n} even", "answer": n % 2 == 0}), {"answer": "answer"}, "false"
    ),
    Brought("whole floats", each(lambda n: {"question": f"Double {n}", "answer": 2.0 * n}), {"answer": "answer"}, "2"),
    Brought(
        "parts",
        each(lambda n: {"prompt": [user([{"type": "text", "text": f"Say {n}"}])], "answer": n}),
        {"prompt": "prompt", "messages": True, "answer": "answer"},
        "1",
        "Say 1",
    ),
    Brought(
        "two turns of the user",
        each(lambda n: {"messages": [user("Read."), user(f"Say {n}")], "label": f"{n}"}),
        {"prompt": "messages", "answer": "label"},
        "1",
        "Read.\n\nSay 1",
    ),
    Brought(
        "tool calls",
        each(
            lambda n: {
                "messages": [
                    user(f"Add {n} and 3"),
                    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add"}}]},
                    {"role": "tool", "content": f"{n + 3}"},
                    {"role": "assistant", "content": f"{n + 3}"},
                ]
            }
        ),
        {"prompt": "messages", "messages": True},
        "4",
        "Add 1 and 3",
    ),
    Brought(
        "a system prompt of each row",
        each(lambda n: {"system": f"Be {n}.", "question": f"Who is {n}?", "answer": "x"}),
        {"system": "system"},
        "x",
    ),
    Brought(
        "choices counted from 0",
        each(lambda n: {"question": f"Pick {n}", "choices": ["w", "x", "y"], "answer": n % 3}),
        {"choices": "choices", "numbering": "from 0"},
        "B",
        "Pick 1\n\nA) w\nB) x\nC) y",
    ),
    Brought(
        "choices counted from 1",
        each(lambda n: {"question": f"Pick {n}", "options": ["w", "x", "y"], "answer": 1 + n % 3}),
        {"choices": "options", "numbering": "from 1"},
        "B",
    ),
    Brought(
        "labelled choices",
        each(
            lambda n: {"question": f"Pick {n}", "choices": {"text": ["w", "x"], "label": ["1", "2"]}, "answerKey": "2"}
        ),
        {"choices": "choices", "answer": "answerKey", "numbering": ""},
        "B",
    ),
    Brought(
        "a template's tokens",
        each(lambda n: {"prompt": f"<|im_start|>user\nSay {n}<|im_end|>\n", "answer": f"{n}"}),
        {"chat": False},
        "1",
    ),
    Brought(
        "numbers and a target", each(lambda n: {"target": n, "nums": [n, 1]}), {"answer": "target", "prompt": ""}, "1"
    ),
    Brought("LaTeX with one backslash", b'{"problem": "Halve \\frac{1}{2}", "answer": "x"}\n', kind="latex_escapes"),
    Brought("an escape that JSON lacks", b'{"problem": "Find \\pi", "answer": "x"}\n', kind="malformed_json"),
    Brought(
        "one prompt, two answers",
        lines(*({"question": "Who?", "answer": name} for name in ("Ann", "Bo"))),
        kind="conflicting_answers",
    ),
    Brought(
        "answers in prompts",
        each(lambda n: {"question": f"Count to {n}. Answer: {n}", "answer": f"{n}"}),
        kind="answer_in_prompt",
    ),
    Brought(
        "a prefill",
        each(
            lambda n: {
                "prompt": [user(f"Say {n}"), {"role": "assistant", "content": "Well, <think>"}],
                "answer": f"{n}",
            }
        ),
        kind="last_turn",
    ),
    Brought(
        "steps in order",
        each(lambda n: {"question": f"Make tea {n}", "solution": ["1. Boil water.", f"2. Pour {n} cups."]}),
        {"prompt": "question", "answer": ""},
    ),
    Brought(
        "a ranking as the answer",
        each(lambda n: {"question": f"Rank {n}", "answer": ["x", "y", "z"][n % 3 :] + ["x", "y", "z"][: n % 3]}),
        {"prompt": "question", "answer": ""},
    ),
    Brought(
        "alternatives without a word that says so",
        each(lambda n: {"question": f"Name {n}", "answer": [f"n{n}", f"no. {n}"]}),
        kind="several_answers",
    ),
    Brought(
        "a list as text",
        each(lambda n: {"question": f"Split word{n}", "answer": json.dumps([f"word {n}"])}),
        {"answer": "answer"},
        '["word 1"]',
    ),
    Brought(
        "choices that may count from 0 or 1",
        each(lambda n: {"question": f"Pick {n}", "choices": ["w", "x", "y"], "answer": 1}),
        kind="unclear_numbering",
    ),
    Brought(
        "choices counted from 1 after forty rows",
        lines(
            *(
                {"question": f"Pick {n}", "choices": ["w", "x", "y", "z"], "answer": 4 if n == 99 else 1 + n % 3}
                for n in range(100)
            )
        ),
        {"numbering": "from 1"},
        "A",
    ),
    Brought(
        "answers at the end of prompts",
        each(lambda n: {"question": f"Where is the town of {n}? town{n}", "answer": f"town{n}"}),
        kind="answer_in_prompt",
    ),
    Brought(
        "places of images without images",
        each(lambda n: {"question": f"<image>\nFind {n}", "answer": f"x{n}"}),
        kind="image_marks",
    ),
    Brought(
        "a sound as a part",
        each(
            lambda n: {
                "prompt": [user([{"type": "text", "text": f"Say {n}"}, {"type": "input_audio", "input_audio": "x"}])],
                "answer": f"{n}",
            }
        ),
        kind="images",
    ),
    Brought(
        "an address of an image without a type",
        each(
            lambda n: {
                "prompt": [user([{"text": f"Say {n}"}, {"text": "", "image_url": {"url": "x"}}])],
                "answer": f"{n}",
            }
        ),
        kind="images",
    ),
    Brought(
        "reasoning beside the content",
        each(
            lambda n: {
                "messages": [user(f"Say {n}"), {"role": "assistant", "content": f"{n}", "reasoning_content": "hm"}]
            }
        ),
        kind="left_out_parts",
    ),
    Brought(
        "a text that the question is about",
        each(lambda n: {"question": f"How many inns in town {n}?", "passage": f"Town {n} has few.", "answer": "few"}),
        {"prompt": "question", "input": "passage", "answer": "answer"},
        "few",
        "How many inns in town 1?\n\nTown 1 has few.",
    ),
    Brought(
        "one question about several texts",
        each(
            lambda n: {
                "article": f"This is story {n}.",
                "question": "What?",
                "options": ["w", "x"],
                "answer": "AB"[n % 2],
            }
        ),
        {"input": "article", "choices": "options"},
        "B",
        "What?\n\nThis is story 1.\n\nA) w\nB) x",
    ),
    Brought(
        "an index of the right ending",
        each(lambda n: {"ctx": f"A man opens door {n}", "endings": ["w", "x", "y"], "label": str(n % 3)}),
        {"prompt": "ctx", "choices": "endings", "answer": "label", "numbering": "from 0"},
        "B",
    ),
    Brought(
        "choices in columns and a number",
        each(lambda n: {"question": f"Pick {n}", "opa": "w", "opb": "x", "opc": "y", "cop": n % 3}),
        {"answer": "cop", "numbering": "from 0"},
        "B",
        "Pick 1\n\nA) w\nB) x\nC) y",
    ),
    Brought(
        "choices in columns with numbers",
        each(lambda n: {"sentence": f"The _ {n} fell.", "option1": "w", "option2": "x", "answer": str(1 + n % 2)}),
        {"prompt": "sentence", "numbering": "from 1"},
        "B",
    ),
    Brought(
        "choices that have their letters",
        each(lambda n: {"question": f"Pick {n}", "options": ["A)w", "B)x", "C)y"], "rationale": "So.", "correct": "C"}),
        {"answer": "correct", "choices": "options"},
        "C",
        "Pick 1\n\nA) w\nB) x\nC) y",
    ),
    Brought(
        "small letters of choices",
        each(lambda n: {"question": f"Pick {n}", "choices": ["w", "x", "y"], "answer": "abc"[n % 3]}),
        {"choices": "choices"},
        "B",
    ),
    Brought(
        "a prefill and no column named for an answer",
        each(
            lambda n: {
                "prompt": [user(f"Reach {n}"), {"role": "assistant", "content": f"Let me see {n}. <think>"}],
                "target": n,
            }
        ),
        {"prompt": "prompt", "answer": "target"},
        "1",
    ),
    Brought(
        "a prefill and no answer",
        each(lambda n: {"prompt": [user(f"Say {n}"), {"role": "assistant", "content": f"Well, {n} <think>"}]}),
        kind="last_turn",
    ),
    Brought(
        "assertions as the ground truth",
        each(
            lambda n: {
                "prompt": [user(f"Write f{n}")],
                "reward_model": {"ground_truth": json.dumps([f"assert f{n}({n}) == {n}"])},
            }
        ),
        {"test_cases": "reward_model.ground_truth", "answer": ""},
    ),
    Brought(
        "earlier turns in pairs",
        each(lambda n: {"instruction": f"And {n}?", "input": "", "output": f"{n}", "history": [["hi", "hello"]]}),
        {"answer": "output", "test_cases": ""},
        "1",
    ),
    Brought(
        "the end of a plain template",
        each(lambda n: {"prompt": f"### Instruction:\nSay {n}\n\n### Response:\n", "answer": f"{n}"}),
        {"chat": False},
        "1",
    ),
    Brought(
        "LaTeX that is all of an answer",
        lines(*({"problem": f"Halve {n}", "answer": f"\frac{{{n}}}{{2}}"} for n in NUMBERS)),
        kind="latex_escapes",
    ),
    Brought(
        "LaTeX in one of several answers",
        lines(*({"problem": f"Halve {n}", "answers": [f"{n}/2", f"\frac{{{n}}}{{2}}"]} for n in NUMBERS)),
        kind="latex_escapes",
    ),
    Brought(
        "LaTeX in a choice",
        each(lambda n: {"question": f"Halve {n}", "choices": ["\frac12", "x"], "answer": n % 2}),
        kind="latex_escapes",
    ),
    Brought(
        "LaTeX in a system prompt",
        each(lambda n: {"system": "Use \boxed.", "question": f"Halve {n}", "answer": "x"}),
        kind="latex_escapes",
    ),
    Brought(
        "tests of code in some rows with answers",
        each(
            lambda n: {
                "prompt": [user(f"Do {n}")],
                "reward_model": {"ground_truth": f"{n}" if n > 2 else json.dumps({"inputs": ["1"], "outputs": ["2"]})},
            }
        ),
        kind="tests_as_answer",
    ),
    Brought(
        "whole floats in a table",
        b"question,answer\n" + b"".join(b"Double %d,%d.0\n" % (n, 2 * n) for n in NUMBERS),
        kind="whole_floats",
    ),
    Brought(
        "tests and empty solutions",
        each(
            lambda n: {
                "question": f"Sum {n}",
                "solutions": "",
                "input_output": json.dumps({"inputs": [f"{n}"], "outputs": [f"{n}"]}),
            }
        ),
        {"prompt": "question", "test_cases": "input_output", "answer": ""},
    ),
    Brought(
        "tests and code",
        each(
            lambda n: {
                "text": f"Write f{n}",
                "code": f"def f{n}(x):\n    return x",
                "test_list": [f"assert f{n}(1) == 1"],
                "test_setup_code": "",
            }
        ),
        {"prompt": "text", "test_cases": "test_list", "answer": "code"},
        "def f1(x):\n    return x",
    ),
    Brought(
        "images with other names",
        each(lambda n: {"question": f"Find {n}", "decoded_image": {"bytes": "x", "path": "a.png"}, "answer": f"{n}"}),
        kind="images",
    ),
    Brought(
        "links to images",
        each(lambda n: {"question": f"![](images/{n}.png) Find it", "answer": f"x{n}"}),
        kind="image_marks",
    ),
    Brought(
        "rows in an object",
        json.dumps(
            {"version": "1", "data": [{"question": f"Double {n}", "answer": f"{2 * n}"} for n in NUMBERS]}
        ).encode(),
        {"prompt": "question", "answer": "answer"},
        "2",
    ),
    Brought(
        "columns as lists",
        json.dumps({"question": [f"Double {n}" for n in NUMBERS], "answer": [f"{2 * n}" for n in NUMBERS]}).encode(),
        {"prompt": "question", "answer": "answer"},
        "2",
    ),
    Brought(
        "objects over several lines",
        "\n".join(json.dumps({"question": f"Double {n}", "answer": f"{2 * n}"}, indent=2) for n in NUMBERS).encode(),
        {"prompt": "question", "answer": "answer"},
        "2",
    ),
    Brought(
        "lists of messages",
        json.dumps(
            [
                [
                    {"from": "human", "value": f"Double {n}"},
                    {"from": "assistant", "ground_truth": {"value": f"{2 * n}"}},
                ]
                for n in NUMBERS
            ]
        ).encode(),
        {"prompt": "messages", "answer": "messages.-1.ground_truth.value"},
        "2",
        "Double 1",
    ),
    Brought(
        "images", each(lambda n: {"question": f"<image>Find {n}", "images": ["a.png"], "answer": f"{n}"}), kind="images"
    ),
)


def tried(folder: Path, case: Brought) -> str:
    """Check and import the file as a new upload, and say what differs from the case; "" if nothing does."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / files.SOURCE).write_bytes(case.content)
    report = check_file.run(folder, {})
    kinds = [kind["kind"] for kind in report["kinds"]]
    if case.kind:
        return "" if case.kind in kinds else f"{case.kind} isn't told: {kinds}"
    proposed = report["recognised"]["mapping"]
    if wrong := {name: proposed[name] for name, value in case.mapping.items() if proposed[name] != value}:
        return f"the proposal differs: {wrong}"
    imported = import_rows.run(folder, {"mapping": proposed})
    if not imported["usable"]:
        return f"no row is usable: {[kind['kind'] for kind in imported['kinds']]}"
    first = imported["preview"][0]
    if (case.answer, case.prompt or first["prompt"][-1]["content"]) != (
        first["answer"],
        first["prompt"][-1]["content"],
    ):
        return f"the first row is {first}"
    return ""
