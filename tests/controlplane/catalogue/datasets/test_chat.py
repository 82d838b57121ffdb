"""The exact prompt that a model gets, its tokens, and templates that mean ill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controlplane.catalogue.datasets.reader.prompts import chat_templates
from controlplane.catalogue.datasets.reader.prompts.chat import ChatRenderer
from controlplane.catalogue.datasets.reader.prompts.chat_templates import TemplateProblem
from tests.controlplane.catalogue.datasets.tokenizers import CHATML, INST, TALK, a_tokenizer

ASKED = [{"role": "user", "content": "2 + 2?"}]


def renderer(folder: Path, template: object) -> ChatRenderer:
    return ChatRenderer(a_tokenizer(folder, chat_template=template))


def test_messages_become_the_text_that_the_model_goes_on_with(tmp_path: Path) -> None:
    text, tokens = renderer(tmp_path, CHATML).render(ASKED)
    before = "<|im_start|>system\nYou are helpful.<|im_end|>\n"
    assert text == f"{before}<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n"
    special = text.count("<|im_start|>") + text.count("<|im_end|>")
    plain = text.replace("<|im_start|>", "").replace("<|im_end|>", "")
    assert tokens == special + len(plain)


def test_special_tokens_come_from_the_configuration(tmp_path: Path) -> None:
    a_tokenizer(tmp_path, chat_template=INST, eos_token={"__type": "AddedToken", "content": "</s>"})
    text, _ = ChatRenderer(tmp_path).render(TALK)
    assert text == (
        "<s>\n[INST] Answer with a number.\n\nWhat is 2 + 2? [/INST]\n"
        " 4 <b>&amp;</b> </s>\n[INST] Größer: 三 × 3? [/INST]\n"
    )


def test_plain_text_is_as_it_is_with_the_tokens_that_go_around_it(tmp_path: Path) -> None:
    made = renderer(tmp_path, CHATML)
    assert made.render([{"role": "user", "content": "abc"}], chat=False) == ("abc", 4)
    assert made.token_counts(["abc"]) == [3]


def test_many_texts_are_counted_whole_and_at_once(tmp_path: Path) -> None:
    texts = ["abc" * number for number in range(300)] + ["<|im_end|>", "half \ud800 a pair"]
    assert renderer(tmp_path, CHATML).token_counts(texts) == [*(3 * n for n in range(300)), 1, 13]


def test_many_prompts_are_counted_at_once_and_a_refused_one_is_not(tmp_path: Path) -> None:
    template = "{% if messages | length > 1 %}{{ raise_exception('one') }}{% endif %}{{ messages[0].content }}"
    made = renderer(tmp_path, template)
    assert made.prompt_counts([ASKED, ASKED * 2, ASKED]) == [6, None, 6]
    assert made.prompt_counts([ASKED], chat=False) == [7]
    assert ChatRenderer(None).prompt_counts([ASKED, ASKED]) == [None, None]


def test_without_a_tokenizer_texts_are_shown_and_not_counted() -> None:
    made = ChatRenderer(None)
    assert made.render(ASKED) == ("user:\n2 + 2?", None)
    assert made.token_counts(["abc"]) is None
    with pytest.raises(TemplateProblem, match="no longer available"):
        ChatRenderer.with_tokenizer(None)


def test_a_model_with_sentencepiece_alone_is_rendered_and_not_counted(tmp_path: Path) -> None:
    made = renderer(tmp_path, "{{ bos_token }}{{ messages[0].content }}")
    (tmp_path / "tokenizer.json").unlink()
    made = ChatRenderer(tmp_path)
    assert made.render(ASKED) == ("<s>2 + 2?", None)
    with pytest.raises(TemplateProblem, match="has no tokenizer"):
        ChatRenderer.with_tokenizer(tmp_path)


@pytest.mark.parametrize("file", ["chat_template.jinja", "chat_template.json"])
def test_a_template_in_a_file_of_its_own_comes_first(file: str, tmp_path: Path) -> None:
    a_tokenizer(tmp_path)
    own = "own: {{ messages[0].content }}"
    (tmp_path / file).write_text(own if file.endswith("jinja") else json.dumps({"chat_template": own}))
    assert ChatRenderer(tmp_path).text(ASKED) == "own: 2 + 2?"


def test_of_several_templates_the_default_is_taken(tmp_path: Path) -> None:
    several = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    assert renderer(tmp_path, several).text(ASKED) == "plain"


def test_a_model_without_a_template_says_so(tmp_path: Path) -> None:
    with pytest.raises(TemplateProblem, match="no chat template"):
        renderer(tmp_path, None).text(ASKED)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", b"\x80\x02"),
        ("tokenizer_config.json", b"{"),
        ("tokenizer_config.json", b"[" * 100_000),
        ("chat_template.jinja", b"\xff"),
    ],
)
def test_broken_files_are_told_by_name(file: str, content: bytes, tmp_path: Path) -> None:
    a_tokenizer(tmp_path)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(TemplateProblem, match=f"^{file} can't be read"):
        ChatRenderer(tmp_path)


HOSTILE = {
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}": "longer than",
    "{% for a in range(99999) %}{{ messages[0].content.center(9999) }}{% endfor %}": "writes more than",
    "{{ 'a' * 10 ** 10 }}": "forbidden: the result",
    "{{ 10 ** (10 ** 10) }}": "forbidden: the result",
    "{% set n = namespace(x=7) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}": "forbidden: the res",
    "{{ ['a'] * 10 ** 9 }}": "forbidden: the result",
    "{{ '%999999999d' % 1 }}": "forbidden: the text",
    "{{ range(10 ** 9) | list }}": "can't be used with these messages",
    "{{ messages.__class__.__mro__ }}": "forbidden",
    "{{ raise_exception.__globals__['re'] }}": "forbidden",
    "{{ ''['__class__'].x }}": "forbidden",
    "{{ (messages | map(attribute='__class__') | list)[0].x }}": "forbidden",
    "{% set _ = messages.append(1) %}": "forbidden",
    "{{ self.__init__.__globals__ }}": "forbidden",
    "{% include '/etc/passwd' %}": "can't be used with these messages",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}": "nested too deeply",
    "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}": "nested too deeply",
    "{{ " + "[" * 150 + "]" * 150 + " }}": "nested too deeply",
    "{{ messages.nothing.at_all }}": "can't be used with these messages: UndefinedError",
    "{{ 1 / 0 }}": "ZeroDivisionError",
    "{% if %}": "can't be read: .*line 1",
    "{{ raise_exception('only <users> here') }}": "refuses these messages: only <users> here",
    "a" * (2**20 + 1): "longer than 1,048,576 characters",
}  # fmt: skip


@pytest.mark.parametrize(("template", "said"), [pytest.param(*pair, id=pair[0][:40]) for pair in HOSTILE.items()])
def test_a_hostile_template_is_stopped_and_told_in_words(
    template: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_templates, "CPU_SECONDS", 0.3)
    monkeypatch.setattr(chat_templates, "MAX_OUTPUT_CHARACTERS", 100_000)
    with pytest.raises(TemplateProblem, match=said):
        renderer(tmp_path, template).text(ASKED)


@pytest.mark.parametrize("reached", ["''['__class__']", "'{0.__class__}'.format(messages)", "cycler.__init__"])
def test_what_lies_behind_values_is_nothing_to_a_template(reached: str, tmp_path: Path) -> None:
    assert renderer(tmp_path, f"[{{{{ {reached} }}}}]").text(ASKED) == "[]"


def test_a_template_changes_nothing_of_the_messages(tmp_path: Path) -> None:
    made = renderer(tmp_path, "{{ messages | length }}")
    messages = [dict(ASKED[0])]
    assert made.text(messages) == "1"
    assert messages == ASKED
