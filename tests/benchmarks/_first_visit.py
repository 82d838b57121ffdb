"""A person's first visit to a page: Chromium with nothing in its cache, and nothing that watches its scripts.

Playwright keeps JavaScript's debugger on. Then each exception that a script throws and catches costs V8 the lines of
everything on the stack, for which it parses anew: of Plotly, which tries six things while it loads, 4.8 MB several
times over (0.4 s of a core). So here the browser is asked over its own pipe, and its debugger stays off.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks import _chromium

READ = 65536
# Chromium reads its orders from 3 and answers on 4, whatever numbers the pipes have here.
ONTO_3_AND_4 = """
import fcntl, os, sys
for number, pipe in enumerate([fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]], 3):
    os.dup2(pipe, number)
    os.close(pipe)
os.execv(sys.argv[3], sys.argv[3:])
"""
PAUSE_S = 0.1
SETTLED_S = 1.0
"""Without one more chart: the others on screen have no values."""
DRAWN = """(() => {
  const onScreen = [...document.querySelectorAll(".chart")].filter((chart) => {
    const {top, bottom, height} = chart.getBoundingClientRect();
    return height > 0 && bottom > 0 && top < innerHeight;
  });
  return {onScreen: onScreen.length, drawn: window.seen ? seen.charts : []};
})()"""


class Visitor:
    """A Chromium of its own; as a context. Each visit is a first one."""

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="gt-")
        (orders, self._orders), (self._answers, answers) = os.pipe(), os.pipe()
        flags = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", f"--user-data-dir={self._profile}"]
        argv = [sys.executable, "-c", ONTO_3_AND_4, str(orders), str(answers), _chromium.found(), *flags]
        self._process = subprocess.Popen(
            [*argv, *_chromium.FLAGS], pass_fds=(orders, answers), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        os.close(orders)
        os.close(answers)
        self._buffer = b""
        self._asked = 0

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._orders)
        os.close(self._answers)
        shutil.rmtree(self._profile, ignore_errors=True)

    def charts_s(self, address: str, cookies: Mapping[str, str]) -> tuple[int, float]:
        """How many charts were drawn, all with values on screen, and the seconds from the navigation until the last."""
        context = self._ask("Target.createBrowserContext")["browserContextId"]
        given = [{"name": name, "value": value, "url": address} for name, value in cookies.items()]
        self._ask("Storage.setCookies", browserContextId=context, cookies=given)
        target = self._ask("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._ask("Page.enable", session)
        self._ask("Emulation.setDeviceMetricsOverride", session, **_chromium.WIDE, deviceScaleFactor=1, mobile=False)
        self._ask("Page.addScriptToEvaluateOnNewDocument", session, source=_chromium.WATCH)
        self._ask("Page.navigate", session, url=address)
        deadline = time.monotonic() + _chromium.LIMIT_S
        drawn: list[float] = []
        changed = time.monotonic()
        while not drawn or time.monotonic() < changed + SETTLED_S:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the charts of {Path(address).name} were not drawn in {_chromium.LIMIT_S:.0f} s")
            time.sleep(PAUSE_S)
            found = self._value(session, DRAWN)
            if len(found["drawn"]) != len(drawn):
                drawn, changed = found["drawn"], time.monotonic()
            if 0 < found["onScreen"] <= len(drawn):
                break
        self._ask("Target.disposeBrowserContext", browserContextId=context)
        return len(drawn), drawn[-1] / 1000

    def _value(self, session: str, expression: str) -> Any:
        answer = self._ask("Runtime.evaluate", session, expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def _ask(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        self._asked += 1
        order = {"id": self._asked, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._orders, json.dumps(order).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") != self._asked:
                continue  # an event
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            found: dict[str, Any] = answer["result"]
            return found

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self._answers, READ)
            if not more:
                raise RuntimeError("Chromium has ended.")
            self._buffer += more
        one, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(one)
        return answer
