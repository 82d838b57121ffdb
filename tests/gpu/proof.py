"""A sitting: the launches of several set-ups through one installation, side by side where their GPUs allow it."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runs.engine.states import FINAL
from tests.gpu import gain, ratio, starts, turns, ways
from tests.gpu.figures import parts, peaks_of, preallocated, reserved, step_seconds, tokens_per_s, used_peaks
from tests.gpu.installation import Site, tail
from tests.gpu.launches import Launch, Stage
from tests.gpu.results import FROM_DISPATCH, FROM_PAGE, Entry
from tests.gpu.units import Compared, Gain, Ratio, Setup, Starts, Turns, Unit
from workers.contract.run.hardware import Rollout
from workers.contract.run.spec import AttemptSpec, servers_of
from workers.contract.wire.documents import from_dict
from workers.contract.wire.names import FileName

CLEAN_UP_S = 25.0
"""Kept back of the whole deadline: the last runs are stopped and their GPUs seen free."""
ENDING_S = 12.0
LAST_LINES = 150
"""Of each log: a cause is often said well above the last traceback."""
PAUSE_S = 0.1
FIGURES = ("step_ratio", "step_ratio_interval", "beside_ratio", "beside_ratio_interval", "batch_gain")
"""Of which a unit of its own is made."""


@dataclass
class Sitting:
    site: Site
    deadline: float
    """By time.monotonic()."""
    save: Callable[[Entry], None]
    failures: Path
    machine: dict[str, str]
    command: Callable[[str], str]
    launches: list[Launch] = field(default_factory=list)
    told: dict[str, str] = field(default_factory=dict)
    """Set-up -> why it failed."""

    def go(self, units: Sequence[Unit]) -> None:
        """All launches are sent at once, in order: the product's own queue finds them GPUs."""
        for shape in dict.fromkeys((unit if isinstance(unit, Setup) else unit.setup).shape for unit in units):
            self.say(f"{shape}: {self.site.person.ask_about(str(self.site.models / shape))}")
        for unit in units:
            if isinstance(unit, Setup):
                self._send(unit)
        while any(not launch.over for launch in self.launches):
            if self._left() < 0:
                self._out_of_time()
            for launch in self.launches:
                self._tick(launch)
            time.sleep(PAUSE_S)
        self._let_them_end()
        for unit in units:
            if isinstance(unit, Ratio):
                self._ratio(unit)
            elif isinstance(unit, Compared):
                self._compare(unit)
            elif isinstance(unit, Starts):
                self._starts(unit)
            elif isinstance(unit, Turns | Gain):
                self._figure(unit)

    def say(self, words: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {words}", flush=True)

    def _left(self) -> float:
        return self.deadline - CLEAN_UP_S - time.monotonic()

    # --- set-ups ------------------------------------------------------------------------------------------

    def _send(self, setup: Setup) -> None:
        """The first launch shows the steps; the others are killed as soon as they have made one."""
        launches = [
            Launch(setup, self.site, number + 1, setup.steps if number == 0 else 1, setup.limit_s)
            for number in range(setup.kills)
        ]
        try:
            profile = self._profile(setup)
            for launch in launches:
                launch.send(profile, setup.launch)
        except (RuntimeError, KeyError, TimeoutError) as error:
            for launch in launches:
                launch.give_up(str(error))
            self._failed(setup, str(error), launches)
            return
        self.launches += launches
        self.say(f"{setup.name}: sent {len(launches)} launches")

    def _profile(self, setup: Setup) -> str:
        return self.site.person.make_profile(self.site.shipped(setup.slug), f"proof of {setup.name}", setup.profile)

    def _tick(self, launch: Launch) -> None:
        if launch.over:
            return
        before, steps = launch.stage, len(launch.seen)
        try:
            launch.tick(time.time())
        except Exception as error:
            traceback.print_exc()
            launch.give_up(f"the harness failed: {error!r}")
        if launch.stage is Stage.GOING and len(launch.seen) > steps:
            self.say(f"{launch.setup.name} {launch.number}: step {len(launch.seen)}")
        if launch.stage is not before:
            self.say(f"{launch.setup.name} {launch.number}: {launch.stage} {launch.failed or launch.killed_when}")
            self._stage_changed(launch)

    def _stage_changed(self, launch: Launch) -> None:
        if not launch.over:
            return
        mine = [one for one in self.launches if one.setup is launch.setup]
        if launch.stage is Stage.FAILED:
            for other in mine:
                if not other.seen:
                    other.give_up(f"launch {launch.number} failed")
            self._failed(launch.setup, launch.failed, [launch])
        for setup in {one.setup.name: one.setup for one in self.launches}.values():
            self._save(setup)

    def _save(self, setup: Setup) -> None:
        """What is known of a set-up so far; again after each launch, as the next one's start belongs to it."""
        done = [one for one in self.launches if one.setup is setup and one.stage is Stage.DONE]
        if not done:
            return
        kills = [one.kill() for one in done]
        entry: Entry = {"name": setup.name, "says": setup.says, "batch": setup.batch, **self._circumstances(setup.name)}
        first = next((one for one in done if one.number == 1), None)
        if first is not None:
            entry |= figures_of(first)
        entry |= {
            "kill_free_s": [kill["free_s"] for kill in kills],
            "receipts_free": [kill["free"] for kill in kills],
            "next_start_s": [s for one in done if (s := next_start(one, self.launches)) is not None],
            "kills": kills,
        }
        if setup.name in self.told:
            entry["failed"] = self.told[setup.name]
        self.save(entry)

    def _circumstances(self, name: str) -> Entry:
        return {**self.machine, "date": datetime.now(UTC).strftime("%Y-%m-%d"), "command": self.command(name)}

    # --- the ratio ----------------------------------------------------------------------------------------

    def _ratio(self, unit: Ratio) -> None:
        if self._left() < unit.limit_s:
            self.say(f"{unit.name}: no time is left for it")
            return
        self.say(f"{unit.name}: begins")
        try:
            profiles = [self._made_or_new(setup) for setup in ratio.swapped(unit, self.site)]
            found = ratio.measure(unit, self.site, profiles, self.deadline - CLEAN_UP_S)
        except (RuntimeError, KeyError, OSError, TimeoutError) as error:
            self._failed(unit.setup, f"ratio: {error}", [])
            return
        self.say(f"{unit.name}: {found['step_ratio']}")
        where = {"ratio_command": self.command(unit.name), "ratio_machine": self.machine["machine"]}
        self.save({"name": unit.setup.name, "says": unit.setup.says, **found, **where})

    # --- starts -------------------------------------------------------------------------------------------

    def _starts(self, unit: Starts) -> None:
        if self._left() < unit.least_s:
            self.say(f"{unit.name}: no time is left for it")
            return
        self.say(f"{unit.name}: begins")
        about = {"name": unit.name, "says": unit.setup.says, "batch": unit.setup.batch}

        def profile_of(changes: dict[str, Any]) -> str:
            words = "".join(f", {name} {value}" for name, value in changes.items())
            named = replace(unit.setup, name=f"{unit.name}{words}", profile={**unit.setup.profile, **changes})
            return self._made_or_new(named)

        def save(found: Entry) -> None:
            seconds = {name: value for name, value in found.items() if name.startswith("first_step_s")}
            self.say(f"{unit.name}: {seconds}")
            self.save({**about, **found, **self._circumstances(unit.name)})

        try:
            starts.measure(unit, self.site, profile_of, self.deadline - CLEAN_UP_S, save)
        except (RuntimeError, KeyError, OSError, TimeoutError) as error:
            self._failed(unit.setup, f"start: {error}", [])

    def _figure(self, unit: Turns | Gain) -> None:
        """A unit that is one figure, and no set-up of its own."""
        self.say(f"{unit.name}: begins")
        about = {"name": unit.name, "says": unit.setup.says, "batch": unit.setup.batch, "gpus": unit.setup.gpus}
        try:
            profile = self._made_or_new(unit.setup)
            if isinstance(unit, Gain):
                found = gain.measure(unit, self.site, profile)
            else:
                found = turns.measure(unit, self.site, profile, self.deadline - CLEAN_UP_S)
        except (RuntimeError, KeyError, OSError, TimeoutError) as error:
            self._failed(unit.setup, f"{unit.name}: {error}", [])
            return
        self.say(f"{unit.name}: { {name: found[name] for name in FIGURES if name in found} }")
        self.save({**about, **found, **self._circumstances(unit.name)})

    def _made_or_new(self, setup: Setup) -> str:
        with contextlib.suppress(RuntimeError):
            return self.site.person.choice("profile", f"proof of {setup.name}")
        return self._profile(setup)

    def _compare(self, unit: Compared) -> None:
        self.say(f"{unit.name}: begins")
        try:
            found = ways.measure(unit, self.site, self._profile(unit.setup), self.deadline - CLEAN_UP_S, self.say)
        except (RuntimeError, KeyError, OSError, TimeoutError) as error:
            self._failed(unit, str(error), [])
            return
        self.save({"name": unit.name, "says": unit.says, **found, **self._circumstances(unit.name)})

    # --- what goes wrong ----------------------------------------------------------------------------------

    def _out_of_time(self) -> None:
        for launch in self.launches:
            if not launch.over:
                launch.give_up(f"the sitting's time was over ({launch.state.phase if launch.state else 'not sent'})")
                self._failed(launch.setup, launch.failed, [launch])

    def _let_them_end(self) -> None:
        """What was given up is being stopped by its supervisor: a better end than ours, where there is time."""
        deadline = time.monotonic() + ENDING_S
        while time.monotonic() < deadline:
            states = [self.site.state(launch.run).status for launch in self.launches if launch.run]
            if set(states) <= FINAL:
                return
            time.sleep(PAUSE_S)

    def _failed(self, setup: Setup | Compared, why: str, launches: Sequence[Launch]) -> None:
        """Why, and the end of every log, into one file; what an earlier sitting proved stays."""
        self.say(f"{setup.name}: FAILED: {why[:600]}")
        if setup.name in self.told:
            return
        first = not self.told
        self.told[setup.name] = why[:600]
        self.save({"name": setup.name, "says": setup.says, "failed": why[:600], **self._circumstances(setup.name)})
        with self.failures.open("a") as file:
            file.write(f"\n===== {setup.name}: {why}\n")
            for launch in launches:
                folder = self.site.folder(launch.run) if launch.run else Path(os.devnull)
                for log in sorted((folder / FileName.LOGS).glob("*.log")):
                    file.write(f"--- {launch.run} {log.name}\n{tail(log, LAST_LINES)}\n")
            if first:
                file.write(f"{self.site.last_words()}\n")


def figures_of(launch: Launch) -> Entry:
    """Steps, speed, memory and start of a launch that ran alone on its GPUs."""
    spec = spec_of(launch)
    gpus, placement = launch.gpus, spec.placement
    receipt = launch.state.receipt if launch.state else None
    peaks = used_peaks(launch.samples, receipt, gpus)
    colocated = spec.run.hardware.rollout is Rollout.COLOCATE
    apart = parts(
        peaks=peaks,
        gpus=gpus,
        trainer_gpus=placement.gpus,
        ranks=reserved(launch.seen),
        vllm_on=vllm_on(launch, spec),
        inside_torch=colocated,
    )
    speed = tokens_per_s(launch.seen)
    times = step_seconds(launch.seen)
    return {
        "gpus": len(gpus),
        "gpu_ids": list(gpus),
        "steps": len(launch.seen),
        "tokens_per_s": None if speed is None else round(speed, 1),
        "step_median_s": round(statistics.median(times), 3) if times else None,
        "peak_gib": peaks_of(apart),
        "nvml_peak_gib": peaks,
        "peak_parts_gib": apart,
        "first_step_s": round(launch.seen[0].t - launch.begun, 2) if launch.seen else None,
        "first_step_from": FROM_DISPATCH if launch.waited else FROM_PAGE,
    }


def vllm_on(launch: Launch, spec: AttemptSpec) -> dict[int, float | None]:
    """GPU -> GiB that vLLM said it took there; inside the trainer it says nothing, and takes its share of the card."""
    logs = launch.site.folder(launch.run) / FileName.LOGS
    if spec.run.hardware.rollout is Rollout.COLOCATE:
        share, cap = spec.run.hardware.colocate_memory_utilization, spec.run.hardware.memory_cap_gib
        return {gpu: share * (cap or launch.site.card_gib(gpu)) for gpu in spec.placement.gpus}
    return {gpu: preallocated(_text(logs / f"{place.role}.log")) for place in servers_of(spec) for gpu in place.gpus}


def spec_of(launch: Launch) -> AttemptSpec:
    return from_dict(AttemptSpec, _json(launch.site.folder(launch.run) / FileName.SPEC))


def next_start(launch: Launch, launches: Sequence[Launch]) -> float | None:
    """From the end of a killed run until the one that waited for it, as the last in its way, had its GPUs."""
    starts = [
        one.dispatched - launch.ended
        for one in launches
        if one.dispatched and launch.ended and one.sent < launch.ended and _last_before(one, launches) is launch
    ]
    return round(min(starts), 3) if starts else None


def _last_before(one: Launch, launches: Sequence[Launch]) -> Launch | None:
    """Of the runs that held something of what `one` got, the one that ended last."""
    held = [each for each in launches if each is not one and each.ended and each.held & one.held]
    before = [each for each in held if (each.ended or 0.0) <= (one.dispatched or 0.0)]
    return max(before, key=lambda each: each.ended or 0.0, default=None)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes())
