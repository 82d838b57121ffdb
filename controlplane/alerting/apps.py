from django.apps import AppConfig


class AlertingConfig(AppConfig):
    name = "controlplane.alerting"
    label = "alerting"
    default_auto_field = "django.db.models.BigAutoField"
