from django.apps import AppConfig


class WarmConfig(AppConfig):
    name = "runs.warm"
    label = "warm"
