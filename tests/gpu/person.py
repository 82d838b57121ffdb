"""A person at the product's pages: signs in, uploads, makes rewards and profiles, launches and stops, by requests."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from typing import Any

import httpx

from tests.gpu.pages import form_with, forms, send, text_of

USER, PASSWORD = "operator", "a long operator password"
NEW_RUN = "/runs/new/"
FREE = "All processes ended; all resources released."
"""What the run page says of a receipt that proves it."""


class Person:
    def __init__(self, url: str, transport: httpx.BaseTransport | None = None) -> None:
        self.http = httpx.Client(
            base_url=url, headers={"Origin": url}, timeout=60, trust_env=False, transport=transport
        )
        self._token = ""

    def sign_in(self) -> None:
        page = "/sign-in/"
        form = form_with(self._page(page), "username", "password")
        answer = send(self.http, page, form, {"username": USER, "password": PASSWORD})
        if answer.url.path == page:
            raise RuntimeError(f"the sign-in was refused: {text_of(answer.text)[:500]}")

    def upload(self, name: str, rows: int = 0, *, lines: Sequence[dict[str, str]] = (), **mapping: Any) -> str:
        """A dataset with columns question and answer; its value in the New run form. `lines`: its rows, in place of
        made-up ones. `mapping`: further fields."""
        page = "/datasets/upload/"
        form = form_with(self._page(page), "file")
        file = (f"{name}.jsonl", _written(lines or _made_up(rows)), "application/jsonl")
        version = str(send(self.http, page, form, {"name": name}, file=file).url.path)
        html = self._until(version, lambda text: "answer_after" in text)
        form = next(form for form in forms(html) if "answer_after" in form.names)
        send(self.http, version, form, {"prompt": "question", "answer": "answer", "chat": "chat", **mapping})
        self._until(version, lambda text: "ready to train on" in text_of(text))
        return self.choice("dataset_version", name)

    def make_reward_config(self, name: str) -> str:
        """One component that random text scores on, beside one that it doesn't."""
        page = "/rewards/new/"
        form = form_with(self._page(page), "name", "row")
        row = forms(f"<form>{self._page('/rewards/component/?function=unique_chars')}</form>")[0].fields
        filled = {**form.fields, **row, "name": name, "row": [*form.fields["row"], *row["row"]]}
        answer = self.http.post(page, data=filled, follow_redirects=True)
        if answer.status_code != 200:
            raise RuntimeError(f"the reward config was refused: {text_of(answer.text)[:1500]}")
        return self.choice("reward_version", name)

    def make_profile(self, shipped: int, name: str, changes: dict[str, Any]) -> str:
        """A new profile with a shipped one's fields and some changes: its page, sent as a new one's form."""
        filled = form_with(self._page(f"/hardware/profiles/{shipped}/"), "rollout")
        page = "/hardware/profiles/new/"
        form = form_with(self._page(page), "rollout")
        own = {key: value for key, value in filled.fields.items() if key != "csrfmiddlewaretoken"}
        kept = {key: None for key in form.fields if key not in own and key != "csrfmiddlewaretoken"}
        send(self.http, page, form, {**kept, **own, **changes, "name": name})
        return self.choice("profile", name)

    def ask_about(self, model: str, seconds: float = 20) -> str:
        """What the page shows once a host has looked at the model; "" when none does in time."""
        form = form_with(self._page(NEW_RUN), "model", "profile")
        shown = self.http.post("/runs/new/model", data=form.filled({"model": model})).text
        deadline = time.monotonic() + seconds
        while (again := re.search(r'hx-get="(/runs/new/model/\d+)"', shown)) and time.monotonic() < deadline:
            time.sleep(0.3)
            shown = self._page(again[1])
        return "" if again else text_of(shown)

    def launch(self, choices: dict[str, Any]) -> tuple[str, float, float]:
        """The run's id, and when the page was sent and answered."""
        page = NEW_RUN
        form = form_with(self._page(page), "model", "profile")
        begun = time.time()
        answer = send(self.http, page, form, choices)
        run = answer.url.path.strip("/").rpartition("/")[2]
        if answer.url.path == page:
            raise RuntimeError(f"the launch was refused: {text_of(answer.text)[-1500:]}")
        return run, begun, time.time()

    def stop(self, run: str) -> float:
        """Stop now; when it was asked for."""
        asked = time.time()
        self._press(f"/runs/{run}/stop", mode="now")
        return asked

    def end_server(self, run: str) -> None:
        """End a warm server, on the Hardware page."""
        self._press(f"/hardware/warm/{run}/end")

    def choice(self, field: str, label: str) -> str:
        """The value of a select of the New run form whose label begins so."""
        options = form_with(self._page(NEW_RUN), "model", "profile").options[field]
        found = [value for words, value in options.items() if words == label or words.startswith(f"{label} ")]
        if not found:
            raise RuntimeError(f"the New run page offers no {field} {label!r}: {', '.join(options)}")
        return found[-1]

    def sees_a_free_receipt(self, run: str) -> bool:
        return FREE in text_of(self._page(f"/runs/{run}/head/"))

    def close(self) -> None:
        self.http.close()

    def _press(self, path: str, **data: str) -> None:
        self._token = self._token or form_with(self._page(NEW_RUN), "model").fields["csrfmiddlewaretoken"][0]
        answer = self.http.post(path, data={"csrfmiddlewaretoken": self._token, **data})
        if answer.status_code not in (200, 302):
            raise RuntimeError(f"{path} was refused ({answer.status_code}): {text_of(answer.text)[:500]}")

    def _page(self, path: str) -> str:
        answer = self.http.get(path, follow_redirects=True)
        if answer.status_code != 200:
            raise RuntimeError(f"{path} answers {answer.status_code}: {text_of(answer.text)[:500]}")
        return answer.text

    def _until(self, path: str, there: Any, seconds: float = 90) -> str:
        deadline = time.monotonic() + seconds
        while not there(text := self._page(path)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} after {seconds:.0f} s: {text_of(text)[:1500]}")
            time.sleep(0.2)
        return text


def _made_up(rows: int) -> list[dict[str, str]]:
    return [{"question": f"What is {n} plus {n + 7}? Think first.", "answer": str(2 * n + 7)} for n in range(rows)]


def _written(lines: Sequence[dict[str, str]]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()
