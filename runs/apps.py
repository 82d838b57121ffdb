from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs"

    def ready(self) -> None:
        from runs import account_changes  # noqa: F401  # connects signal handlers; its models are only ready now
