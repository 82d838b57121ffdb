from django.apps import AppConfig


class SharingConfig(AppConfig):
    name = "runs.sharing"
    label = "sharing"
