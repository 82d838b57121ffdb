from django.apps import AppConfig


class DatasetsConfig(AppConfig):
    name = "controlplane.datasets"
    default_auto_field = "django.db.models.BigAutoField"
