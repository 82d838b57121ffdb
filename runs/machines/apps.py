from django.apps import AppConfig


class MachinesConfig(AppConfig):
    name = "runs.machines"
    label = "machines"
