from django.apps import AppConfig


class ActivityConfig(AppConfig):
    name = "controlplane.platform.activity"

    def ready(self) -> None:
        from controlplane.platform.activity import recording, watched  # its models are only ready now

        watched.watch_all()
        recording.watch_sign_ins()
