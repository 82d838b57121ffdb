import json
from pathlib import Path

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

PROFILES = Path(__file__).with_name("profiles.json")


def lay(apps, schema_editor):
    profiles = apps.get_model("hardware", "HardwareProfile").objects
    profiles.bulk_create(profiles.model(**columns) for columns in json.loads(PROFILES.read_text()))


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("hardware", "0001_initial"),
        ("hardware", "0002_shipped_profiles"),
        ("hardware", "0003_profiles_and_trials"),
        ("hardware", "0004_host_idle_and_removed"),
        ("hardware", "0005_profiles_of_set_ups"),
        ("hardware", "0006_unsandboxed"),
    ]

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='HardwareProfile',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=80, unique=True)),
                ('description', models.TextField(blank=True)),
                ('spec', models.JSONField()),
                ('lora', models.JSONField(null=True)),
                ('batch', models.JSONField(default=dict)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('owner', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='Host',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=64, unique=True)),
                ('inventory', models.JSONField(default=dict)),
                ('trainer_schema', models.JSONField(null=True)),
                ('announced_at', models.DateTimeField(null=True)),
                ('draining', models.BooleanField(default=False)),
                ('watched_at', models.DateTimeField(null=True)),
                ('history', models.JSONField(default=list)),
                ('idle_mib', models.JSONField(default=dict)),
                ('removed_at', models.DateTimeField(null=True)),
                ('unsandboxed_allowed', models.BooleanField(default=False)),
                ('unsandboxed_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='ModelInspection',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('model', models.CharField(max_length=500)),
                ('asked_at', models.DateTimeField(auto_now_add=True)),
                ('answered_at', models.DateTimeField(null=True)),
                ('answer', models.JSONField(null=True)),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='hardware.host')),
            ],
            options={
                'ordering': ('-asked_at',),
            },
        ),
        migrations.RunPython(lay, migrations.RunPython.noop),
    ]
