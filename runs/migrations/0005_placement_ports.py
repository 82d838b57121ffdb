"""A placement names a port for each vLLM server: {"port": p} becomes {"ports": [p]}."""

from django.db import migrations


def several(apps, schema_editor):
    Attempt = apps.get_model("runs", "Attempt")
    for attempt in Attempt.objects.exclude(placement=None).only("placement"):
        placement = attempt.placement
        if isinstance(placement, dict) and "port" in placement:
            port = placement.pop("port")
            placement["ports"] = [] if port is None else [port]
            Attempt.objects.filter(pk=attempt.pk).update(placement=placement)


class Migration(migrations.Migration):
    dependencies = [("runs", "0004_profiles_and_trials")]

    operations = [migrations.RunPython(several, migrations.RunPython.noop)]
