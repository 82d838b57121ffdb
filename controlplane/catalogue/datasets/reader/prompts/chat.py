"""Rendering of prompts with a tokenizer's chat template, and counting of their tokens.

A template comes with a model and may be as hostile as an upload: it runs in jinja2's immutable sandbox, with limits on
time, length and the size of numbers, in a child with a memory limit. It gets the same functions as in transformers, so
that the text is the same as in training.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from controlplane.catalogue.datasets.reader.excerpts import visible
from controlplane.catalogue.datasets.reader.prompts.chat_templates import Template, TemplateProblem

TOKENIZER, CONFIG = "tokenizer.json", "tokenizer_config.json"
TEMPLATE, OLD_TEMPLATE = "chat_template.jinja", "chat_template.json"
SPECIAL_TOKENS = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
BATCH_CHARACTERS = 2**20
"""Total number of characters of the texts in one batch."""
MAX_THREADS = 4
"""Maximum threads that count tokens, since each takes address space."""


class ChatRenderer:
    """Renderer of prompts, which also counts their tokens, with the files in the `folder` of a datasets.Tokenizer.

    Without a folder, messages are listed one below the other, and tokens aren't counted. Raises TemplateProblem if the
    folder's files can't be read.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._special: dict[str, str] = {}
        self._template: Template | None = None
        self._tokenizer: Any = None  # tokenizers.Tokenizer, which has no types
        if folder is None:
            return
        config = json_of(folder / CONFIG)
        self._special = special_of(config)
        if source := template_of(folder, config):
            self._template = Template(source, self._special)
        if (folder / TOKENIZER).is_file():
            self._tokenizer = _tokenizer(folder / TOKENIZER, self._special.values())

    @classmethod
    def with_tokenizer(cls, folder: Path | None) -> "ChatRenderer":
        """Create a renderer that can count tokens. Raises TemplateProblem if the folder has no readable tokenizer."""
        if folder is None:
            raise TemplateProblem("The tokenizer to count with is no longer available.")
        renderer = cls(folder)
        if renderer._tokenizer is None:
            raise TemplateProblem("The chosen model has no tokenizer.json, and sentencepiece files can't be read.")
        return renderer

    def text(self, messages: Sequence[Mapping[str, str]], *, chat: bool = True) -> str:
        """Return the exact text that the model continues: without `chat`, the messages' contents, for a base model.
        Raises TemplateProblem if the model has no chat template, or if it can't render the messages."""
        [text] = self._texts([messages], chat=chat)
        if isinstance(text, TemplateProblem):
            raise text
        return text

    def render(self, messages: Sequence[Mapping[str, str]], *, chat: bool = True) -> tuple[str, int | None]:
        """Return the text, and the number of its tokens or None without a tokenizer. Raises TemplateProblem when `text`
        does."""
        text = self.text(messages, chat=chat)
        token_counts = self.token_counts([text], with_special=not chat)
        return text, token_counts[0] if token_counts else None

    def prompt_counts(self, prompts: Sequence[Sequence[Mapping[str, str]]], *, chat: bool = True) -> list[int | None]:
        """Count the tokens of each prompt: None for prompts that the template refuses, or without a tokenizer."""
        texts = self._texts(prompts, chat=chat)
        counts = iter(self.token_counts([text for text in texts if isinstance(text, str)], with_special=not chat) or ())
        return [next(counts, None) if isinstance(text, str) else None for text in texts]

    def _texts(self, prompts: Sequence[Sequence[Mapping[str, str]]], *, chat: bool) -> Sequence[str | TemplateProblem]:
        if not chat:
            return ["\n\n".join(message["content"] for message in messages) for messages in prompts]
        if self._folder is None:
            labelled = ([f"{message['role']}:\n{message['content']}" for message in messages] for messages in prompts)
            return ["\n\n".join(messages) for messages in labelled]
        if self._template is None:
            why = "The model has no chat template. Choose plain text, or another tokenizer."
            return [TemplateProblem(why)] * len(prompts)
        return self._template.texts(prompts)

    def token_counts(self, texts: Sequence[str], *, with_special: bool = False) -> list[int] | None:
        """Count the tokens of many texts, several times faster than one by one; return None without a tokenizer.
        `with_special` includes tokens that the tokenizer puts around plain text; chat templates write their own."""
        if self._tokenizer is None:
            return None
        token_counts: list[int] = []
        for batch in _batches(texts):
            try:
                encodings = self._tokenizer.encode_batch_fast(batch, add_special_tokens=with_special)
            except (TypeError, UnicodeEncodeError):  # unpaired surrogates, which Rust doesn't accept as text
                encodable = [text.encode("utf-8", "replace").decode() for text in batch]
                encodings = self._tokenizer.encode_batch_fast(encodable, add_special_tokens=with_special)
            token_counts.extend(map(len, encodings))
        return token_counts


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
    """Find the chat template where transformers would, and return it, or "" if there is none. Raises TemplateProblem if
    it can't be read."""
    try:
        return (folder / TEMPLATE).read_text(encoding="utf-8")
    except FileNotFoundError:
        templates = json_of(folder / OLD_TEMPLATE).get("chat_template") or config.get("chat_template")
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateProblem(f"{TEMPLATE} can't be read: {error}.") from None
    if isinstance(templates, list):  # older configurations have several templates, by name
        templates = {entry.get("name"): entry.get("template") for entry in templates if isinstance(entry, dict)}
    if isinstance(templates, dict):
        templates = templates.get("default")
    return templates if isinstance(templates, str) else ""


def _tokenizer(path: Path, special: Any) -> Any:
    # Tokenizers reads this when it starts its threads, each of which maps memory.
    os.environ.setdefault("RAYON_NUM_THREADS", str(min(MAX_THREADS, os.cpu_count() or 1)))
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
    """Return the object in a JSON file, or {} if the file doesn't exist. Raises TemplateProblem if it can't be read."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise TemplateProblem(f"{path.name} can't be read: {visible(str(error))[:200]}.") from None
    return content if isinstance(content, dict) else {}


def special_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens in a tokenizer's configuration, which are strings or objects with a "content"."""
    values = {name: config.get(name) for name in SPECIAL_TOKENS}
    texts = {name: value.get("content") if isinstance(value, dict) else value for name, value in values.items()}
    return {name: text for name, text in texts.items() if text and isinstance(text, str)}
