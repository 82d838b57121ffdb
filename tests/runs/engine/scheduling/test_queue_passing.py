"""A later run never delays one before it: random queues on random hosts, each order of ends against the same queue
without those behind."""

from __future__ import annotations

import random
from itertools import permutations

import pytest
from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import User
from runs.engine.models import Run
from runs.engine.scheduling import leasing
from runs.engine.scheduling.gpu_queue import Capacity
from runs.engine.scheduling.leasing import Hold, Need, Shortage
from runs.engine.states import Waits

Job = tuple[str, Need, int | None]
"""(name, what it needs, the host it asked for)"""
Placed = dict[str, tuple[int, list[str]]]
"""Run -> (host, its resources)"""


def a_machine(chance: random.Random, pk: int) -> Host:
    gpus = [{"index": index} for index in range(chance.randint(0, 4))]
    inventory = {"gpus": gpus, "cpu_slots": chance.randint(0, 3), "port_range": [21000, 21003]}
    return Host(pk=pk, name=f"h{pk}", inventory=inventory, announced_at=timezone.now())


def a_need(chance: random.Random) -> Need:
    if chance.random() < 0.25:
        pinned = tuple(chance.sample(range(4), chance.randint(1, 2)))
        return Need(len(pinned), 0, chance.randint(0, 1), 0, pinned=pinned)
    if chance.random() < 0.25:
        return Need(1, 1, 0, 1, first_port=chance.choice([None, 21000]), group_port=True)
    return Need(chance.randint(0, 4), 0, chance.randint(0, 2), 0)


def jobs(chance: random.Random, count: int, hosts: list[Host], prefix: str) -> list[Job]:
    asked = [None, None, *(host.pk for host in hosts)]
    return [(f"{prefix}{n}", a_need(chance), chance.choice(asked)) for n in range(count)]


def walk(hosts: list[Host], running: Placed, queue: list[Job], sick: Placed) -> Placed:
    """One walk of the dispatcher; what starts is added to `running`."""
    taken: dict[int, dict[str, Hold]] = {host.pk: {} for host in hosts}
    for how, placed in ((Waits.HELD, running), (Waits.QUARANTINED, sick)):
        for name, (host_pk, resources) in placed.items():
            taken[host_pk].update(dict.fromkeys(resources, Hold(how, name, name, "olga")))
    capacity = Capacity(hosts, taken)
    started: Placed = {}
    for name, need, asked in queue:
        run = Run(pk=name, name=name, owner=User(username="olga"))
        found = capacity.find(need, asked)
        if isinstance(found, Shortage):
            capacity.reserve(need, asked, run)
        else:
            capacity.occupy(*found, run)
            started[name] = (found[0].pk, leasing.resources(found[1]))
    return started


def starts(hosts: list[Host], held: Placed, queue: list[Job], ends: tuple[str, ...], sick: Placed) -> dict[str, int]:
    """Run -> after how many ends it started; whoever starts goes on for ever."""
    running, waiting, when = dict(held), list(queue), {}
    for moment, ended in enumerate(("", *ends)):
        running.pop(ended, None)
        started = walk(hosts, running, waiting, sick)
        running |= started
        when |= dict.fromkeys(started, moment)
        waiting = [job for job in waiting if job[0] not in started]
    return when


def test_nobody_starts_later_for_those_behind(subtests: pytest.Subtests) -> None:
    for seeds in [range(first, first + 25) for first in range(0, 150, 25)]:
        with subtests.test(seeds=seeds):
            for seed in seeds:
                starts_no_later_for_those_behind(seed)


def starts_no_later_for_those_behind(seed: int) -> None:
    chance = random.Random(seed)
    hosts = [a_machine(chance, pk) for pk in range(1, chance.randint(2, 3))]
    held = walk(hosts, {}, jobs(chance, 5, hosts, "held"), {})
    sick = {name: held.pop(name) for name in list(held) if chance.random() < 0.15}
    queue = jobs(chance, 4, hosts, "q")
    orders = list(permutations(held))
    for ends in chance.sample(orders, min(4, len(orders))):
        everybody = starts(hosts, held, queue, ends, sick)
        for count, (name, _, _) in enumerate(queue, start=1):
            alone = starts(hosts, held, queue[:count], ends, sick)
            assert everybody.get(name) == alone.get(name), (seed, name, queue, ends)
