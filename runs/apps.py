from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs"

    def ready(self) -> None:
        from controlplane.datasets.corpora import archiving
        from controlplane.environments import corpora as environments
        from runs import account_changes, acts, corpora  # noqa: F401  # connects signal handlers; its models are only ready now
        from runs.metrics import models  # noqa: F401  # so that they are known to Django

        acts.watch_all()
        archiving.USERS.extend([environments.users, corpora.users])
