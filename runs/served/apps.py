from django.apps import AppConfig


class ServedConfig(AppConfig):
    name = "runs.served"
    label = "served"
