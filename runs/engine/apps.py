from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs.engine"
    label = "runs"

    def ready(self) -> None:
        from controlplane.catalogue.datasets import archiving
        from controlplane.catalogue.environments import corpora as environments

        # Its models are only ready now.
        from runs.engine import audit, corpora, step_spans  # noqa: F401  # so that Django knows all models
        from runs.engine.scheduling import account_changes  # noqa: F401  # connects its signal handlers

        audit.watch_all()
        archiving.CORPUS_USERS.extend([environments.users, corpora.users])
