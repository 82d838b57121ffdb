"""Specs of runs, into which catalogue rows are frozen so that later edits don't change the run."""

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.models import Q, QuerySet

from controlplane.catalogue.datasets.corpora.queries import specs_of
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import CorpusVersion, Dataset, DatasetVersion
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.rewards.models import SUM_THEN_NORMALIZE, RewardVersion
from runs.engine.models import Priority, ProfileTrial, Run, RunGroup
from workers.contract.run import mixing
from workers.contract.run.episodes import EpisodeSpec
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.mixing import SourceSettings, SourceSpec
from workers.contract.run.overlapping import with_correction
from workers.contract.run.settings import only_for
from workers.contract.run.spec import DataSpec, ModelSpec, RewardSpec, RunSettings, RunSpec
from workers.contract.wire.documents import ContractError, from_dict, to_dict

AGGREGATION = "multi_objective_aggregation"
MAX_NAMED = 5


@dataclass(frozen=True)
class ChosenSource:
    """A dataset version of a mix, with what the run decides about it."""

    version: DatasetVersion
    settings: SourceSettings = field(default_factory=SourceSettings)


@dataclass(frozen=True, kw_only=True)
class LaunchRequest(RunSettings):
    """A run's settings with the chosen catalogue rows. A spec needs a dataset, rewards and a hardware profile."""

    name: str = ""
    model: ModelSpec | str = ""
    host: Host | None = None
    """The host to run on; None for any host that fits."""
    dataset_version: DatasetVersion | None = None
    reward_version: RewardVersion | None = None
    profile: HardwareProfile | None = None
    vllm_share: float | None = None
    """Share of a GPU's memory for the run's own vLLM; None for the profile's share."""
    sources: tuple[ChosenSource, ...] = ()
    """The datasets of a mix. One that is `dataset_version` has the settings of the run's own dataset."""
    eval_rows: int = 0
    eval_reward_version: RewardVersion | None = None
    """Separate reward config for evaluations on the held-out rows; ignored without such rows."""
    priority: int = Priority.NORMAL
    kind: str = "train"
    trial: ProfileTrial | None = None
    group: RunGroup | None = None
    source: Run | None = None
    cloned_from: Run | None = None
    environment_version: EnvironmentVersion | None = None

    @property
    def model_spec(self) -> ModelSpec:
        return ModelSpec(self.model) if isinstance(self.model, str) else self.model

    @property
    def hardware(self) -> HardwareSpec | None:
        """The chosen profile's hardware, or None if no profile is chosen or the contract can't read it."""
        try:
            return hardware_of(self.profile, self.vllm_share) if self.profile else None
        except ContractError:
            return None

    def chosen_rows(self) -> tuple[DatasetVersion, RewardVersion, HardwareProfile]:
        """Return the chosen dataset version, reward version and profile. Raises ContractError if one is missing."""
        if self.dataset_version is None or self.reward_version is None or self.profile is None:
            raise ContractError("a run needs a dataset, rewards and a hardware profile")
        return self.dataset_version, self.reward_version, self.profile


def freeze(request: LaunchRequest, run_id: str) -> RunSpec:
    """Freeze a request into a spec. Raises ContractError, naming the field, if the dataset, rewards and profile don't
    form a valid spec."""
    dataset_version, reward_version, profile = request.chosen_rows()
    rewards = rewards_of(reward_version, at="rewards")
    eval_version = request.eval_reward_version if request.eval_rows else None
    eval_rewards = rewards_of(eval_version, at="eval_rewards") if eval_version else ()
    for version in (dataset_version, *(source.version for source in request.sources)):
        if version.status != DatasetVersion.READY:
            raise ContractError(f"data: {version} is not ready ({version.status})")
    _check(dataset_version, rewards, eval_rewards, request.eval_rows)
    used_settings = only_for(request.kind, request)
    overrides = {
        "grpo": with_correction(with_aggregation(reward_version, request.grpo), used_settings.ahead),
        "attn_implementation": request.attn_implementation or None,
        "episodes": _with_corpora(request.episodes),
    }
    spec = RunSpec(
        run_id=run_id,
        name=request.name,
        kind=request.kind,
        model=request.model_spec,
        data=data_of(dataset_version, request.eval_rows, request.sources),
        rewards=rewards,
        hardware=hardware_of(profile, request.vllm_share),
        failed_share=reward_version.failed_share,
        eval_rewards=eval_rewards,
        **{**used_settings.chosen_settings(), **overrides},
    )
    for problem in mixing.problems(spec.data.every_source):
        raise ContractError(f"data.sources: {problem}")
    # Round trip through JSON: a value that can't be sent to the host fails here, before the launch.
    return from_dict(RunSpec, to_dict(spec))


def data_of(version: DatasetVersion, eval_rows: int, sources: Sequence[ChosenSource]) -> DataSpec:
    """Freeze the run's dataset and those that are mixed with it."""
    own = next((source for source in sources if source.version == version), ChosenSource(version))
    others = tuple(
        SourceSpec(*_frozen_version(source.version), **vars(source.settings)) for source in sources if source is not own
    )
    return DataSpec(*_frozen_version(version), eval_rows, others, **vars(own.settings))


def _frozen_version(version: DatasetVersion) -> tuple[str, int, str, int]:
    return version.dataset.name, version.number, version.sha256, version.rows


def hardware_of(profile: HardwareProfile, vllm_share: float | None = None) -> HardwareSpec:
    """Read a profile's hardware, with the launch's own GPU memory share for vLLM. Raises ContractError if the profile's
    spec is not valid."""
    spec = from_dict(HardwareSpec, {**profile.spec, "profile": profile.name}, at="hardware")
    return spec.with_vllm_share(vllm_share)


def _with_corpora(episodes: EpisodeSpec | None) -> EpisodeSpec | None:
    """Add the current versions of the corpora that the episodes search. Raises ContractError if there is no such
    corpus."""
    if episodes is None:
        return None
    try:
        return replace(episodes, corpora=specs_of(episodes.parts))
    except DatasetError as error:
        raise ContractError(f"episodes: {error}") from error


def rewards_of(version: RewardVersion, *, at: str = "rewards") -> tuple[RewardSpec, ...]:
    """Read the components of a reward config. Raises ContractError, naming the component as `at`[i]."""
    return tuple(from_dict(RewardSpec, part, at=f"{at}[{i}]") for i, part in enumerate(version.components))


def with_aggregation(version: RewardVersion, grpo: Mapping[str, Any]) -> dict[str, Any]:
    """Add the reward config's aggregation to GRPO settings, unless the user chose one or it is TRL's default."""
    if version.aggregation == SUM_THEN_NORMALIZE:
        return dict(grpo)
    return {AGGREGATION: version.aggregation, **grpo}


def spec_of(run: Run) -> RunSpec:
    return from_dict(RunSpec, run.spec)


def readable_spec(run: Run) -> RunSpec | None:
    """Read a run's spec; return None if this version can't read it."""
    try:
        return spec_of(run)
    except ContractError:
        return None


def why_unreadable(run: Run) -> str:
    """Explain why this version can't read the run's spec, or return "" if it can."""
    try:
        spec_of(run)
    except ContractError as error:
        return str(error)
    return ""


def mixed_versions(run: Run) -> list[DatasetVersion | None]:
    """List the dataset versions of a run's mix, its own first; None for one that is gone."""
    sources = (run.spec.get("data") or {}).get("sources") or []
    hashes = [source.get("sha256") for source in sources]
    by_hash = {version.sha256: version for version in ready_with(hashes)} if hashes else {}
    return [run.dataset_version, *(by_hash.get(sha256) for sha256 in hashes)]


def mixed_version(run: Run, sha256: str) -> DatasetVersion | None:
    """Find the version with this checksum if it is a further dataset of the run's mix; otherwise return None."""
    return next((version for version in mixed_versions(run)[1:] if version and version.sha256 == sha256), None)


def ready_with(hashes: Sequence[str]) -> QuerySet[DatasetVersion]:
    """Return the versions, ready to be trained on, with one of these checksums."""
    versions = DatasetVersion.objects.filter(sha256__in=hashes, status=DatasetVersion.READY)
    return versions.select_related("dataset").defer("report").order_by("pk")


def runs_on(dataset: Dataset) -> QuerySet[Run]:
    """Return the runs, deleted ones included, that draw from a dataset."""
    mixing_runs = runs_mixing(dataset.versions.defer("report"))
    return Run.every.filter(Q(dataset_version__dataset=dataset) | Q(pk__in=mixing_runs.values("pk")))


def is_mixed(version: DatasetVersion) -> bool:
    return runs_mixing([version]).exists()


def runs_mixing(versions: Iterable[DatasetVersion]) -> QuerySet[Run]:
    """Return the runs, deleted ones included, whose mix has one of these versions."""
    hashes = [version.sha256 for version in versions if version.sha256]
    conditions = (Q(spec__data__sources__icontains=sha256) for sha256 in hashes)
    return Run.every.filter(functools.reduce(operator.or_, conditions)) if hashes else Run.every.none()


def searched_corpus(run: Run, sha256: str) -> CorpusVersion | None:
    """Find the corpus version with this checksum if the run's environment searches it; otherwise return None."""
    corpora = (run.spec.get("episodes") or {}).get("corpora") or []
    if sha256 not in [corpus.get("sha256") for corpus in corpora]:
        return None
    return CorpusVersion.objects.filter(sha256=sha256, status=CorpusVersion.READY).select_related("corpus").first()


def runs_searching(version: CorpusVersion) -> list[str]:
    """Name the first runs that search a corpus version and so prevent its deletion, as `the run NAME`."""
    runs = Run.every.filter(spec__icontains=version.sha256).order_by("-pk") if version.sha256 else Run.every.none()
    names = [f"the run {name}" for name in runs.values_list("name", flat=True)[: MAX_NAMED + 1]]
    return [*names[:MAX_NAMED], "other runs"] if len(names) > MAX_NAMED else names


def _check(
    dataset_version: DatasetVersion,
    rewards: tuple[RewardSpec, ...],
    eval_rewards: tuple[RewardSpec, ...],
    eval_rows: int,
) -> None:
    if not 0 <= eval_rows <= dataset_version.validation_rows:
        rows = dataset_version.validation_rows
        raise ContractError(f"data.eval_rows: {eval_rows} requested, but {dataset_version} has {rows} validation rows")
    if not rewards:
        raise ContractError("rewards: a run needs at least one")
    names = [reward.name for reward in rewards]
    if len(set(names)) < len(names):
        raise ContractError("rewards: two components have the same name, and TRL would merge them silently")
    if shared_names := sorted(set(names) & {reward.name for reward in eval_rewards}):
        raise ContractError(
            f"eval_rewards: {', '.join(shared_names)} is also the name of a component of the training rewards, so the "
            "metrics of both would have the same name"
        )
