from django.apps import AppConfig


class EnvironmentsConfig(AppConfig):
    name = "controlplane.environments"

    def ready(self) -> None:
        from controlplane.datasets.corpora import archiving
        from controlplane.environments import corpora  # its models are only ready now

        archiving.USERS.append(corpora.users)
