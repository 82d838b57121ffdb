"""The multi-turn search example: questions, the corpus with their answers, the environment and the rewards."""

from dataclasses import dataclass
from typing import Any

from controlplane.catalogue.datasets.corpora import building
from controlplane.catalogue.datasets.models import CorpusVersion, DatasetVersion
from controlplane.catalogue.environments import saving as environments
from controlplane.catalogue.environments.models import Environment, EnvironmentVersion
from controlplane.catalogue.rewards import saving as rewards
from controlplane.catalogue.rewards.models import RewardConfig, RewardVersion
from controlplane.catalogue.versioned.queries import with_free_name
from controlplane.platform.accounts.models import User
from runs.launch.new_run.fields.choice_fields import offered_datasets
from workers.environments.encyclopaedia import QUESTIONS

ENVIRONMENT = "Search the sample encyclopaedia"
REWARDS = "Search: answer in the results, then exact match"
COMPONENTS: list[dict[str, Any]] = [
    {"name": "found", "function": "answer_in_results", "per_turn": True},
    {"name": "right", "function": "exact_match"},
]
LIMITS = {"turns": 3, "calls": 2, "output_tokens": 192}


@dataclass(frozen=True)
class SearchExample:
    corpus: CorpusVersion
    environment: EnvironmentVersion
    rewards: RewardVersion
    questions: DatasetVersion | None
    """The questions; None while they are being imported."""

    @property
    def ready(self) -> bool:
        return self.questions is not None and self.corpus.status == CorpusVersion.READY


def create(user: User) -> SearchExample:
    """Create the missing parts of the example and return all of it; existing parts stay. Raises DatasetError if the
    corpus or its questions can't be created."""
    corpus = building.create_sample(user)
    questions = offered_datasets().filter(dataset__name=QUESTIONS).order_by("-number")
    return SearchExample(corpus, _environment(corpus, user), _rewards(user), questions.first())


def _environment(corpus: CorpusVersion, user: User) -> EnvironmentVersion:
    parts = [{"name": "search", "function": "search", "params": {"corpus": str(corpus)}}]
    content = environments.EnvironmentComposition(parts, LIMITS)
    existing = Environment.objects.filter(name=ENVIRONMENT, archived_at=None).first()
    if existing is not None:
        return environments.save(existing, content, by=user)[0]
    # The name may belong to an archived one, or another request may be creating it.
    return with_free_name(Environment, ENVIRONMENT, lambda name: environments.make(name, content, owner=user))


def _rewards(user: User) -> RewardVersion:
    existing = RewardConfig.objects.filter(name=REWARDS, archived_at=None).first()
    if existing is not None:
        return rewards.save(existing, COMPONENTS, by=user)[0]
    return with_free_name(RewardConfig, REWARDS, lambda name: rewards.make(name, COMPONENTS, owner=user))
