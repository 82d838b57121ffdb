from django.apps import AppConfig


class RewardsConfig(AppConfig):
    name = "controlplane.rewards"
    default_auto_field = "django.db.models.BigAutoField"
