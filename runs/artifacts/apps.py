from django.apps import AppConfig


class ArtifactsConfig(AppConfig):
    name = "runs.artifacts"
    label = "artifacts"
