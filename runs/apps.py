from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs"

    def ready(self) -> None:
        from controlplane.datasets.corpora import archiving
        from runs import account_changes, corpora  # noqa: F401  # connects signal handlers; its models are only ready now

        archiving.USERS.append(corpora.users)
