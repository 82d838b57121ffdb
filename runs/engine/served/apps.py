from django.apps import AppConfig


class ServedConfig(AppConfig):
    name = "runs.pages.served"
    label = "served"
