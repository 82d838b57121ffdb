from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs"

    def ready(self) -> None:
        from controlplane.catalogue.datasets.corpora import archiving
        from controlplane.catalogue.environments import corpora as environments
        from runs.engine import audit, corpora  # noqa: F401  # connects signal handlers; its models are only ready now
        from runs.engine import step_spans as models  # noqa: F401  # so that they are known to Django
        from runs.engine.scheduling import account_changes

        audit.watch_all()
        archiving.USERS.extend([environments.users, corpora.users])
