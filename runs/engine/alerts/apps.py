from django.apps import AppConfig


class AlertingConfig(AppConfig):
    name = "runs.engine.alerts"
    label = "alerting"
