from django.apps import AppConfig


class ServedConfig(AppConfig):
    name = "runs.engine.served"
    label = "served"
