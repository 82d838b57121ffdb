from django.apps import AppConfig


class ArtifactsConfig(AppConfig):
    name = "runs.engine.artifacts"
    label = "artifacts"
