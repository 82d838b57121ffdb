from django.apps import AppConfig


class WarmConfig(AppConfig):
    name = "runs.engine.warm"
    label = "warm"
