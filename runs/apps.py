from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs"

    def ready(self) -> None:
        from runs import account_changes  # noqa: F401  # it connects, and its models exist only now
