"""Many supervisors in one process: each claims its attempt, writes a line a second, and syncs as a supervisor does.

Standard input takes one JSON object a line and each gets one back: {"do": "claim", "attempts": [{"id", "token"}],
...}, {"do": "measure"}, {"do": "finish"}. Raw HTTP, so that the generator costs little beside what it measures.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from typing import Any

BATCH_S = 1.0
BATCH_WATCHED_S = 0.1
HEARTBEAT_S = 2.0
SAMPLE_STEPS = 2
"""A line of the host's figures after so many steps."""
TIMEOUT_S = 10.0
"""workers.settings: batch_s, batch_watched_s, heartbeat_s, sample_s at a step a second, http_timeout_s."""
RETRY_S = 0.25
FREE = {
    "seconds_to_gone": 0.1,
    "processes_ended": 1,
    "orphans_found": 0,
    "survivors": [],
    "gpus": [],
    "port_free": None,
    "free": True,
}
SYSTEM = {"host/cpu_percent": 12.5, "host/memory_mib": 10_000}


class Refused(Exception):
    """An answer other than 200, in time."""


class Connection:
    def __init__(self, address: tuple[str, int], token: str) -> None:
        self._address = address
        self._token = token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        try:
            return await asyncio.wait_for(self._post(path, document), TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    async def _post(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
        reader, writer = self._streams
        body = json.dumps(document, separators=(",", ":")).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._address[0]}:{self._address[1]}\r\nAuthorization: Bearer "
            f"{self._token}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        length = next(int(line.partition(":")[2]) for line in headers if line.startswith("content-length:"))
        answer = await reader.readexactly(length)
        if " 200 " not in headers[0]:
            raise Refused(f"{headers[0]}: {answer[:300].decode(errors='replace')}")
        if "connection: close" in headers:
            self.close()
        found: dict[str, Any] = json.loads(answer)
        return found

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Figures:
    """What all attempts have seen since `begin`."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.since = time.time()
        self.row_s: list[float] = []
        self.sync_s: list[float] = []
        self.errors: dict[str, int] = {}
        self.late_s = 0.0
        self.cpu_s = time.process_time()

    def failed(self, error: BaseException) -> None:
        name = f"{type(error).__name__}: {error}"[:200]
        self.errors[name] = self.errors.get(name, 0) + 1


class Attempt:
    """One supervisor: lines in memory until they are acked, at most a request on its way."""

    def __init__(self, plan: dict[str, Any], attempt: dict[str, Any], figures: Figures) -> None:
        self.id = attempt["id"]
        self.plan = plan
        self.figures = figures
        self.connection = Connection((plan["host"], plan["port"]), attempt["token"])
        self.lines: list[dict[str, Any]] = []
        self.seq = 0
        self.step = 0
        self.ending = False
        self.acked = 0
        self.watched = False
        self.again_s = 0.0
        # A supervisor's lines and its requests keep the distance that they happen to begin with.
        self.last_sent = time.monotonic() - random.random() * BATCH_S

    async def claim(self) -> None:
        body = {"schema": self.plan["schema"], "host": self.plan["name"], "pid": os.getpid(), "boot_id": "bench"}
        answer = await self.connection.post(f"/api/attempts/{self.id}/claim", body)
        if not answer["go"]:
            raise RuntimeError(f"{self.id} may not go: {answer['why']}")
        self.write("training", {"max_steps": 1_000_000, "step": 0}, t=time.time())
        await self.sync()

    async def train(self) -> None:
        begin, began = time.monotonic() + random.random(), time.time() - time.monotonic()
        while not self.ending:
            now, beat = time.monotonic(), begin + self.step
            if now >= beat:
                self.figures.late_s = max(self.figures.late_s, now - beat)
                # The time at which it should have been written: an answer that is slow delays no clock.
                self.beat(began + beat)
                continue
            due = self.last_sent + self.pause_s()
            if now >= due:
                self.last_sent = now
                await self.try_sync()
                continue
            await asyncio.sleep(min(beat, due) - now)
        self.write("ended", {"reason": "completed", "detail": "", "exit_codes": {}, "receipt": FREE}, t=time.time())
        while self.lines:
            await self.try_sync()
        self.connection.close()

    def pause_s(self) -> float:
        if not self.lines:
            return HEARTBEAT_S
        return BATCH_WATCHED_S if self.watched else max(BATCH_S, self.again_s)

    def beat(self, t: float) -> None:
        self.step += 1
        values = {f"metric_{number}": (self.step + number) / 7 for number in range(self.plan["metrics"])}
        self.write("train", values, t=t, step=self.step)
        if self.step % SAMPLE_STEPS == 0:
            self.write("system", SYSTEM, t=t)

    def write(self, kind: str, data: dict[str, Any], *, t: float, step: int | None = None) -> None:
        self.seq += 1
        self.lines.append({"seq": self.seq, "t": t, "kind": kind, "step": step, "data": data})

    async def try_sync(self) -> None:
        try:
            await self.sync()
        except (Refused, OSError, EOFError, TimeoutError, asyncio.IncompleteReadError) as error:
            self.figures.failed(error)
            await asyncio.sleep(RETRY_S * random.uniform(0.8, 1.2))

    async def sync(self) -> None:
        sent = time.monotonic()
        answer = await self.connection.post(f"/api/attempts/{self.id}/sync", {"lines": self.lines, "paced": True})
        now, self.acked, self.watched = time.time(), answer["ack"], answer["watched"]
        self.again_s = answer.get("again_s") or 0.0
        self.figures.sync_s.append(time.monotonic() - sent)
        while self.lines and self.lines[0]["seq"] <= self.acked:
            line = self.lines.pop(0)
            if line["kind"] == "train" and line["t"] >= self.figures.since:
                self.figures.row_s.append(now - line["t"])


class Load:
    def __init__(self) -> None:
        self.figures = Figures()
        self.attempts: list[Attempt] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def claim(self, plan: dict[str, Any]) -> dict[str, Any]:
        made = [Attempt(plan, attempt, self.figures) for attempt in plan["attempts"]]
        few = asyncio.Semaphore(8)

        async def one(attempt: Attempt) -> None:
            async with few:
                await attempt.claim()

        await asyncio.gather(*(one(attempt) for attempt in made))
        self.attempts += made
        self.tasks += [asyncio.create_task(attempt.train()) for attempt in made]
        return {"claimed": len(made)}

    async def measure(self, plan: dict[str, Any]) -> dict[str, Any]:
        self.figures.begin()
        return {}

    async def look(self, plan: dict[str, Any]) -> dict[str, Any]:
        """What was seen since `measure`."""
        for task in self.tasks:
            if task.done():
                task.result()
        figures = self.figures
        return {
            "row_s": figures.row_s,
            "sync_s": figures.sync_s,
            "errors": figures.errors,
            "late_s": figures.late_s,
            "cpu_s": time.process_time() - figures.cpu_s,
        }

    async def finish(self, plan: dict[str, Any]) -> dict[str, Any]:
        for attempt in self.attempts:
            attempt.ending = True
        await asyncio.gather(*self.tasks)
        return {"acked": {attempt.id: attempt.acked for attempt in self.attempts}}


async def main() -> None:
    load = Load()
    acts = {"claim": load.claim, "measure": load.measure, "look": load.look, "finish": load.finish}
    while line := await asyncio.to_thread(sys.stdin.readline):
        plan = json.loads(line)
        print(json.dumps(await acts[plan["do"]](plan)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
