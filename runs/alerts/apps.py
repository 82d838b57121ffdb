from django.apps import AppConfig


class AlertingConfig(AppConfig):
    name = "runs.alerts"
    label = "alerting"
