"""Uses of secrets: the reward configs that name them, and the queued or running runs that use them."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.catalogue.datasets.models import StoredFolder
from controlplane.catalogue.rewards.models import RewardConfig, RewardVersion
from controlplane.catalogue.versioned.queries import newest_versions
from controlplane.platform import sealing
from controlplane.platform.accounts import vault
from controlplane.platform.accounts.models import HUB_TOKEN, Secret
from controlplane.platform.templatetags.figures import ago
from runs.engine.artifacts.models import StoredCopy
from runs.engine.models import Attempt, Run
from runs.engine.sentences import counted
from runs.engine.spec import spec_of
from runs.engine.states import FINAL, RunStatus
from workers.contract.run.spec import RewardSpec
from workers.contract.wire.artifacts import STORE
from workers.contract.wire.documents import ContractError, from_dict

MAX_LISTED_NAMES = 3
PURPOSES = {
    Secret.Kind.HUB: "model downloads",
    Secret.Kind.STORE: "checkpoints",
    Secret.Kind.ENGINE: "sources of machines",
}


@dataclass(frozen=True)
class SecretView:
    row: Secret
    trouble: str
    configs: tuple[RewardConfig, ...]
    attempts: tuple[Attempt, ...]
    last_run: Run | None
    holds: tuple[str, ...] = ()
    """Sentences about the contents of the artifact store."""

    @property
    def purpose(self) -> str:
        """The use of a secret that no config or attempt names."""
        if self.configs or self.attempts:
            return ""
        return PURPOSES.get(Secret.Kind(self.row.kind), "nobody")

    @property
    def last_use(self) -> SafeString:
        if not self.row.used_at:
            return SafeString('<span class="muted">never</span>')
        use: str | SafeString = ""
        if self.last_run:
            address = reverse("run", args=[self.last_run.pk])
            use = format_html(' by <a href="{}">{}</a>', address, self.last_run.name)
        elif not self.row.used_by and self.row.kind != Secret.Kind.ENGINE:
            use = " in a test"
        return format_html("{} ago{}", ago(self.row.used_at), use)

    @property
    def consequences(self) -> list[str]:
        if self.row.kind == Secret.Kind.ENGINE:
            return ["Its token is deleted. Sources that name it can't request or remove machines."]
        lines = ["Its key is deleted. Runs that start from now on don't get it."]
        if self.row.name == HUB_TOKEN:
            return [*lines, "Models that only this token's account can see can no longer be fetched."]
        if self.row.name == STORE:
            return [
                *lines,
                "New checkpoints stay only on their hosts, and no run can resume from the store. Its contents remain.",
            ]
        if self.configs:
            lines.append(f"{_join_names([c.name for c in self.configs])} can't be used for launches until changed.")
        if waiting_names := [attempt.run.name for attempt in self.attempts if attempt.status == RunStatus.QUEUED]:
            lines.append(f"{_join_names(waiting_names)}, in the queue, will fail to start.")
        return lines


def secret_views() -> list[SecretView]:
    configs, attempts = _configs(), _attempts()
    rows = list(Secret.objects.select_related("by"))
    last_runs = Run.objects.in_bulk([row.used_by for row in rows if row.used_by])
    return [
        SecretView(
            row,
            _trouble(row),
            tuple(configs[row.name]),
            tuple(attempts[row.name]),
            last_runs.get(row.used_by),
            tuple(_holdings()) if row.name == STORE else (),
        )
        for row in rows
    ]


def _holdings() -> Iterator[str]:
    copies, folders = StoredCopy.objects.all(), StoredFolder.objects.all()
    complete, datasets = copies.filter(wanted=True, next_at=None).count(), folders.exclude(stored_at=None).count()
    yield f"It contains {counted(complete, 'checkpoint')} and {counted(datasets, 'dataset')}."
    if waiting_count := copies.filter(wanted=True).exclude(next_at=None).count():
        yield f"{counted(waiting_count, 'checkpoint')} of unfinished runs, or not yet uploaded."
    if unwanted_copies := list(copies.filter(wanted=False).select_related("attempt__run")):
        names = _join_names(list(dict.fromkeys(copy.attempt.run.name for copy in unwanted_copies)))
        yield f"{counted(len(unwanted_copies), 'checkpoint')} of {names} still to be removed."
    if problem := copies.exclude(problem="").order_by("-next_at").values_list("problem", flat=True).first():
        yield problem
    if problem := folders.exclude(problem="").order_by("-next_at").values_list("problem", flat=True).first():
        yield f"A dataset: {problem}"


def _trouble(row: Secret) -> str:
    try:
        row.key()
    except sealing.CannotOpen as error:
        return str(error)
    return ""


def _configs() -> dict[str, list[RewardConfig]]:
    configs: dict[str, list[RewardConfig]] = defaultdict(list)
    for version in newest_versions(RewardVersion):
        try:
            rewards = [from_dict(RewardSpec, part) for part in version.components]
        except ContractError:
            continue  # another version; its own page reports it
        for name in vault.names_in(rewards):
            configs[name].append(version.config)
    return configs


def _attempts() -> dict[str, list[Attempt]]:
    attempts: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in Attempt.objects.exclude(status__in=FINAL).select_related("run"):
        try:
            spec = spec_of(attempt.run)
        except ContractError:
            continue
        for name in {*vault.names_in(spec.every_entry), *(sink.secret for sink in spec.sinks)}:
            attempts[name].append(attempt)
    return attempts


def _join_names(names: list[str]) -> str:
    remainder = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(names[:MAX_LISTED_NAMES]) + remainder
