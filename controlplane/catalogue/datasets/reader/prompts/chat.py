"""A prompt as the model gets it: messages through the tokenizer's chat template, and how many tokens that is.

The template comes with a model and is as hostile as an upload: it runs in jinja2's immutable sandbox with limits of
its own (time, length, sizes of numbers), in a child with limits of memory. What it may use is what transformers offers
to chat templates, so the text is the one that the trainer makes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from controlplane.catalogue.datasets.reader.excerpts import visible
from controlplane.catalogue.datasets.reader.prompts.chat_templates import Template, TemplateProblem

TOKENIZER, CONFIG = "tokenizer.json", "tokenizer_config.json"
TEMPLATE, OLD_TEMPLATE = "chat_template.jinja", "chat_template.json"
SPECIAL_TOKENS = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
BATCH_CHARACTERS = 2**20
"""Total length of the texts in one batch."""
AROUND = 8
"""Tokens that a tokenizer may put around a text."""
LONGEST_WORD = 40
REMEMBERED_WORDS = 100_000
THREADS = 4
"""Threads for counting tokens; each takes address space."""


class ChatRenderer:
    """`folder`: of a datasets.Tokenizer, with those of the four files that the model has. None: no tokenizer is known,
    so messages are shown one below the other and not counted.

    Raises TemplateProblem where the folder's files can't be read.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._special: dict[str, str] = {}
        self._template: Template | None = None
        self._tokenizer: Any = None  # tokenizers.Tokenizer, which has no types
        self._word_tokens = _WordTokens()
        if folder is None:
            return
        config = json_of(folder / CONFIG)
        self._special = special_of(config)
        if source := template_of(folder, config):
            self._template = Template(source, self._special)
        if (folder / TOKENIZER).is_file():
            self._tokenizer = _tokenizer(folder / TOKENIZER, self._special.values())

    @property
    def counts_tokens(self) -> bool:
        """False without a tokenizer.json: sentencepiece's own files are not read."""
        return self._tokenizer is not None

    def text(self, messages: Sequence[Mapping[str, str]], *, chat: bool = True) -> str:
        """The exact text that the model is asked to go on with. Not `chat`: the messages' contents, as a base model
        gets them. Raises TemplateProblem."""
        [text] = self._texts([messages], chat=chat)
        if isinstance(text, TemplateProblem):
            raise text
        return text

    def render(self, messages: Sequence[Mapping[str, str]], *, chat: bool = True) -> tuple[str, int | None]:
        """The text and its tokens. Raises TemplateProblem."""
        text = self.text(messages, chat=chat)
        counted = self.counts([text], special=not chat)
        return text, counted[0] if counted else None

    def prompt_counts(
        self, prompts: Sequence[Sequence[Mapping[str, str]]], *, chat: bool = True, over: int = 0
    ) -> list[int | None]:
        """Tokens of many prompts at once; None of one that the template refuses, and of all without a tokenizer.

        `over`: None also of one that surely has no more tokens than that, which saves most of the time.
        """
        if not self.counts_tokens:
            return [None] * len(prompts)
        texts = {place: text for place, text in enumerate(self._texts(prompts, chat=chat)) if isinstance(text, str)}
        if over:
            texts = self._not_surely_within(over, texts)
        counts = dict(zip(texts, self.counts(list(texts.values()), special=not chat) or (), strict=True))
        return [counts.get(place) for place in range(len(prompts))]

    def _texts(self, prompts: Sequence[Sequence[Mapping[str, str]]], *, chat: bool) -> Sequence[str | TemplateProblem]:
        if not chat:
            return ["\n\n".join(message["content"] for message in messages) for messages in prompts]
        if self._folder is None:
            labelled = ([f"{message['role']}:\n{message['content']}" for message in messages] for messages in prompts)
            return ["\n\n".join(messages) for messages in labelled]
        if self._template is None:
            why = "The model has no chat template: choose plain text, or another tokenizer."
            return [TemplateProblem(why)] * len(prompts)
        return self._template.texts(prompts)

    def _not_surely_within(self, limit: int, texts: Mapping[int, str]) -> dict[int, str]:
        """Texts that may exceed the limit, by their characters and then by the sum of their words' tokens.

        Tokenizers cut a text at spaces first, so its words apart never have fewer tokens than the whole. Words are
        counted once, and only where the characters of those that are not known yet leave it open.
        """
        split = {place: text.split(" ") for place, text in texts.items() if _longest(text) + AROUND > limit}
        split = {place: words for place, words in split.items() if self._bound(words) > limit}
        known = self._word_tokens
        if new := [word for word in set().union(*split.values()).difference(known) if len(word) <= LONGEST_WORD]:
            if len(known) + len(new) > REMEMBERED_WORDS:
                known.clear()
                new = [word for word in set().union(*split.values()) if len(word) <= LONGEST_WORD]
            known.update(zip(new, self.counts([f" {word}" for word in new]) or (), strict=True))
        return {place: texts[place] for place, words in split.items() if self._bound(words) > limit}

    def _bound(self, words: Sequence[str]) -> int:
        """An upper bound of the tokens in a text of these words."""
        return sum(map(self._word_tokens.__getitem__, words)) + _longest(words[0]) + AROUND

    def count(self, text: str) -> int | None:
        """Tokens of a text as it stands, without special ones around it; None without a tokenizer."""
        counted = self.counts([text])
        return counted[0] if counted else None

    def counts(self, texts: Sequence[str], *, special: bool = False) -> list[int] | None:
        """Count many texts at once, several times faster. `special`: with those that the tokenizer puts around plain
        text; text from a chat template has them already."""
        if self._tokenizer is None:
            return None
        found: list[int] = []
        for batch in _batches(texts):
            try:
                encoded = self._tokenizer.encode_batch_fast(batch, add_special_tokens=special)
            except (TypeError, UnicodeEncodeError):  # unpaired surrogates, which Rust doesn't accept as text
                whole = [text.encode("utf-8", "replace").decode() for text in batch]
                encoded = self._tokenizer.encode_batch_fast(whole, add_special_tokens=special)
            found.extend(map(len, encoded))
        return found


class _WordTokens(dict[str, int]):
    """Word -> its tokens after a space; for an unknown word, more than it can have."""

    def __missing__(self, word: str) -> int:
        return _longest(word)


def _longest(word: str) -> int:
    """Tokens of a word by its characters, one of which may be several bytes, and more when normalised."""
    return len(word) + 1 if word.isascii() else sys.maxsize


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def template_of(folder: Path, config: Mapping[str, Any]) -> str:
    """The chat template, where transformers looks for it; "" without one."""
    try:
        return (folder / TEMPLATE).read_text(encoding="utf-8")
    except FileNotFoundError:
        templates = json_of(folder / OLD_TEMPLATE).get("chat_template") or config.get("chat_template")
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateProblem(f"{TEMPLATE} can't be read: {error}.") from None
    if isinstance(templates, list):  # several by name, as older configurations have them
        templates = {one.get("name"): one.get("template") for one in templates if isinstance(one, dict)}
    if isinstance(templates, dict):
        templates = templates.get("default")
    return templates if isinstance(templates, str) else ""


def _tokenizer(path: Path, special: Any) -> Any:
    # Read when its threads start; the more there are, the more memory they map.
    os.environ.setdefault("RAYON_NUM_THREADS", str(min(THREADS, os.cpu_count() or 1)))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # Rust's panics don't derive from Exception
        reason = visible(str(error))[:200]
        raise TemplateProblem(f"{TOKENIZER} can't be read: {reason}.") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if missing := [token for token in special if tokenizer.token_to_id(token) is None]:
        tokenizer.add_special_tokens(missing)
    return tokenizer


def json_of(path: Path) -> dict[str, Any]:
    """An object; {} without the file."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise TemplateProblem(f"{path.name} can't be read: {visible(str(error))[:200]}.") from None
    return found if isinstance(found, dict) else {}


def special_of(config: Mapping[str, Any]) -> dict[str, str]:
    return {name: text for name in SPECIAL_TOKENS if (text := _token(config.get(name)))}


def _token(value: Any) -> str:
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""
