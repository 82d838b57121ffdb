from django.apps import AppConfig


class SharingConfig(AppConfig):
    name = "runs.pages.sharing"
    label = "sharing"
