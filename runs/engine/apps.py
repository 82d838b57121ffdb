from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs.engine"
    label = "runs"

    def ready(self) -> None:
        from controlplane.catalogue.datasets import archiving
        from controlplane.catalogue.environments.models import environments_searching

        # Its models are only ready now.
        from runs.engine import audit, hints, step_spans  # noqa: F401  # Django has to know all models and signal handlers
        from runs.engine.scheduling import dispatching  # noqa: F401
        from runs.engine.spec import is_mixed, runs_searching

        audit.watch_all()
        archiving.CORPUS_USERS.extend([environments_searching, runs_searching])
        archiving.DATASET_USERS.append(is_mixed)
