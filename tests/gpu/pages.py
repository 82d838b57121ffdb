"""The forms of a page, read and sent as a browser would: what isn't changed is sent as the page had it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import httpx


@dataclass
class Form:
    """One form of a page; `fields` are what a browser would send, `names` all that could be filled in."""

    action: str = ""
    method: str = "get"
    fields: dict[str, list[str]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    options: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of each select: label -> value."""

    def filled(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Raises KeyError for a field that the page doesn't have: a person couldn't fill it in either."""
        unknown = sorted(changes.keys() - self.names)
        if unknown:
            raise KeyError(f"the page has no field {', '.join(unknown)}; it has {', '.join(sorted(self.names))}")
        values: dict[str, Any] = {**self.fields}
        for name, value in changes.items():
            if value is None or value is False:
                values.pop(name, None)
            else:
                values[name] = "on" if value is True else value if isinstance(value, list) else str(value)
        return values


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._form: Form | None = None
        self._select = ""
        self._option: str | None = None
        self._area: str | None = None
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        at = dict(attrs)
        name = at.get("name") or ""
        if tag == "form":
            self._form = Form(at.get("action") or "", (at.get("method") or "get").lower())
            self.forms.append(self._form)
        if self._form is None:
            return
        if tag == "input" and name:
            self._input(self._form, name, at)
        elif tag == "textarea" and name:
            self._area, self._text = name, ""
            self._form.names.add(name)
        elif tag == "select" and name:
            self._select = name
            self._form.names.add(name)
            self._form.options[name] = {}
        elif tag == "option" and self._select:
            self._end_option()
            self._option, self._text = at.get("value"), ""
            if "selected" in at or self._select not in self._form.fields:
                self._form.fields[self._select] = [at.get("value") or ""]

    def _input(self, form: Form, name: str, at: dict[str, str | None]) -> None:
        form.names.add(name)
        kind = at.get("type") or "text"
        if kind in ("file", "submit", "button", "image") or (kind in ("checkbox", "radio") and "checked" not in at):
            return
        form.fields.setdefault(name, []).append(at.get("value") or ("on" if kind == "checkbox" else ""))

    def handle_data(self, data: str) -> None:
        self._text += data

    def _end_option(self) -> None:
        if self._form is not None and self._select and self._option is not None:
            self._form.options[self._select][" ".join(self._text.split())] = self._option
        self._option = None

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag in ("option", "select"):
            self._end_option()
            self._select = "" if tag == "select" else self._select
        elif tag == "textarea" and self._form is not None and self._area is not None:
            self._form.fields[self._area] = [self._text.removeprefix("\n")]
            self._area = None


def forms(html: str) -> list[Form]:
    reader = _Reader()
    reader.feed(html)
    return reader.forms


def form_with(html: str, *names: str) -> Form:
    """The form that has all of these fields."""
    found = next((form for form in forms(html) if set(names) <= form.names), None)
    if found is None:
        raise KeyError(f"the page has no form with {', '.join(names)}:\n{text_of(html)[:2000]}")
    return found


def send(client: httpx.Client, page: str, form: Form, changes: dict[str, Any], **files: Any) -> httpx.Response:
    """Post a form of `page` with some changes; what the server then leads to."""
    answer = client.post(form.action or page, data=form.filled(changes), files=files or None, follow_redirects=True)
    if answer.status_code >= 400:
        raise RuntimeError(f"{page} refused the form ({answer.status_code}): {said(answer.text)}")
    return answer


def said(html: str) -> str:
    """What a refused page says is wrong: its error lists and banners."""
    reader = _Said()
    reader.feed(html)
    return " | ".join(" ".join(words.split()) for words in reader.heard if words.strip())[:3000] or text_of(html)[:2000]


class _Said(HTMLParser):
    """The text of elements of some classes. Tags that never close don't count for the depth."""

    CLASSES = frozenset(("errorlist", "error", "banner", "finding", "problem"))
    VOID = frozenset(("input", "br", "img", "hr", "meta", "link", "path", "circle", "line", "rect"))

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.VOID:
            return
        if self._depth:
            self._depth += 1
        elif self.CLASSES & set((dict(attrs).get("class") or "").split()):
            self._depth = 1
            self.heard.append("")

    def handle_endtag(self, tag: str) -> None:
        if self._depth and tag not in self.VOID:
            self._depth -= 1

    def handle_data(self, data: str) -> None:
        if self._depth:
            self.heard[-1] += data


def text_of(html: str) -> str:
    reader = _Text()
    reader.feed(html)
    return " ".join(" ".join(reader.words).split())


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._hidden = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words.append(data)
