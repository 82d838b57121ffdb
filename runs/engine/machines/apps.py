from django.apps import AppConfig


class MachinesConfig(AppConfig):
    name = "runs.engine.machines"
    label = "machines"
