from django.apps import AppConfig


class SharingConfig(AppConfig):
    name = "runs.engine.sharing"
    label = "sharing"
