"""The queue: its order, in one place, and what of the hosts is left for whom as one goes through it.

A later run may pass a waiting one only if it can't delay it. So what is free and a waiting run needs is kept for it,
on each host where it will be able to start when other runs have ended; those behind it take what is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from controlplane.hardware.models import Host
from runs.models import Attempt, Run, Waits
from runs.scheduling import leasing, limits
from runs.scheduling.leasing import Hold, Need, Shortage
from runs.spec import spec_of
from runs.states import RunStatus
from workers.contract import ContractError, Placement

ORDER = ("-priority", "turn", "pk")
"""Said once, as Django says it; `key` and `_before` read it."""


def waiting() -> QuerySet[Attempt]:
    """The queue: who comes first may start first."""
    return Attempt.objects.filter(status=RunStatus.QUEUED).order_by(*ORDER)


def places() -> dict[str, int]:
    """Attempt -> its place in the queue, from 1."""
    return {pk: place for place, pk in enumerate(waiting().values_list("pk", flat=True), start=1)}


def place_of(attempt: Attempt) -> tuple[int, int]:
    """(place, how many wait)"""
    line = Attempt.objects.filter(status=RunStatus.QUEUED)
    return _before(line, attempt).count() + 1, line.count()


def ordinal(place: int) -> str:
    """1st, 2nd, 3rd, 11th"""
    tens, ones = divmod(place % 100, 10)
    return f"{place}{'th' if tens == 1 else {1: 'st', 2: 'nd', 3: 'rd'}.get(ones, 'th')}"


def key(attempt: Attempt) -> tuple[Any, ...]:
    """ORDER, to sort rows by. Any: each column has its own type."""
    return tuple(-getattr(attempt, name[1:]) if name[0] == "-" else getattr(attempt, name) for name in ORDER)


def _before(line: QuerySet[Attempt], attempt: Attempt) -> QuerySet[Attempt]:
    """ORDER as a condition."""
    before, same = Q(), Q()
    for name in ORDER:
        column, earlier = (name[1:], "gt") if name[0] == "-" else (name, "lt")
        value = getattr(attempt, column)
        before |= same & Q(**{f"{column}__{earlier}": value})
        same &= Q(**{column: value})
    return line.filter(before)


def asked_host(attempt: Attempt) -> int | None:
    """The host that it has to run on; None: any."""
    return attempt.host_id or attempt.run.host_id


def need_of(run: Run) -> Need:
    spec = spec_of(run)
    return leasing.need_of(spec.hardware, spec.rewards)


class Capacity:
    """What the hosts have and who has it, for one walk through the queue.

    It only ever fills up: what is released during the walk is for the next one, which that release starts. Otherwise
    it would go to whoever comes next in this one, and not to the first who waits for it.
    """

    def __init__(self, hosts: Iterable[Host], taken: Mapping[int, Mapping[str, Hold]]) -> None:
        self.hosts = list(hosts)
        self.taken: defaultdict[int, dict[str, Hold]] = defaultdict(dict)
        self._add(taken)
        self._owners: dict[int, limits.Allowance] = {}

    @classmethod
    def read(cls) -> Capacity:
        return cls(Host.objects.all(), leasing.held())

    def read_again(self) -> None:
        """Another dispatcher was first to something."""
        self._add(leasing.held())

    def find(self, need: Need, asked: int | None) -> tuple[Host, Placement] | Shortage:
        """Where it can start now, or what it waits for."""
        shorts = []
        hosts = [host for host in self.hosts if asked in (None, host.pk)]
        for host in hosts:
            problem = leasing.host_problem(host, timezone.now())
            placed = Shortage(problem) if problem else leasing.place(need, host, self.taken[host.pk])
            if isinstance(placed, Placement):
                return host, placed
            if placed.hold and len(hosts) > 1:
                placed = replace(placed, text=f"{placed.text} of {host.name}")
            shorts.append(placed)
        # The host that could do it soonest: one where a run's end is enough.
        return min(shorts, key=_soonest, default=Shortage("no host is known yet"))

    def reserve(self, need: Need, asked: int | None, run: Run) -> None:
        """What is free and this run waits with. Nothing on a host that launches can't reach, or that takes none: only
        a person's act, or luck, changes that (leasing.keepable has the others of this kind)."""
        hold = Hold.of(run, Waits.KEPT)
        for host in self.hosts:
            if asked in (None, host.pk) and not leasing.host_problem(host, timezone.now()):
                kept = leasing.keepable(need, host, self.taken[host.pk])
                self.taken[host.pk].update(dict.fromkeys(kept, hold))

    def take(self, host: Host, placement: Placement, run: Run) -> None:
        hold = Hold.of(run, Waits.HELD)
        self.taken[host.pk].update(dict.fromkeys(leasing.resources(placement), hold))
        if run.owner_id in self._owners:
            had = self._owners[run.owner_id]
            self._owners[run.owner_id] = replace(had, running=had.running + 1, queued=had.queued - 1)

    def over_limit(self, run: Run) -> Shortage | None:
        """What a run waits for whose owner has enough of them going. It keeps nothing for itself: how long its owner's
        other runs take is no matter of those behind it."""
        if not limits.max_running(run.owner):
            return None
        if run.owner_id not in self._owners:
            self._owners[run.owner_id] = limits.allowance(run.owner)
        found = self._owners[run.owner_id]
        return None if found.may_start else Shortage(found.wait)

    def walk(self, line: Iterable[Attempt]) -> Iterator[tuple[Attempt, tuple[Host, Placement] | Shortage]]:
        """As the dispatcher would, but nothing starts: who would, takes what it would."""
        for attempt in line:
            try:
                need, asked = need_of(attempt.run), asked_host(attempt)
            except ContractError as error:
                # The dispatcher ends it.
                yield attempt, Shortage(f"its spec can't be read: {error}")
                continue
            over = self.over_limit(attempt.run)
            found = over or self.find(need, asked)
            if not isinstance(found, Shortage):
                self.take(*found, attempt.run)
            elif over is None:
                self.reserve(need, asked, attempt.run)
            yield attempt, found

    def _add(self, taken: Mapping[int, Mapping[str, Hold]]) -> None:
        for host_id, holds in taken.items():
            self.taken[host_id].update(holds)


def capacity_behind(priority: int) -> tuple[Capacity, int]:
    """What those before a new run of this priority leave, and how many wait before it."""
    capacity = Capacity.read()
    line = waiting().filter(priority__gte=priority).select_related("run__owner")
    return capacity, sum(isinstance(found, Shortage) for _, found in capacity.walk(line))


def _soonest(short: Shortage) -> int:
    if short.hold is None:
        return 2
    return int(short.hold.how == Waits.QUARANTINED)
