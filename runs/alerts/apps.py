from django.apps import AppConfig


class AlertingConfig(AppConfig):
    name = "runs.alerts"
    label = "alerting"
    default_auto_field = "django.db.models.BigAutoField"
