from django.apps import AppConfig


class ActivityConfig(AppConfig):
    name = "controlplane.activity"

    def ready(self) -> None:
        from controlplane.activity import recording, watched  # its models are only ready now

        watched.watch_all()
        recording.sign_ins()
