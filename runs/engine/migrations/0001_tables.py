import django.db.models.deletion
import runs.engine.models
import json
import time
from pathlib import Path

from django.conf import settings
from django.db import migrations, models


PRESETS = Path(__file__).with_name("health_presets.json")


def lay(apps, schema_editor):
    presets = apps.get_model("runs", "HealthPreset").objects
    for row in json.loads(PRESETS.read_text()):
        presets.create(**row, is_default=row["slug"] == "mixed")


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("runs", "0001_initial"),
        ("runs", "0002_attempt_ack_and_supervisor"),
        ("runs", "0003_launch_key"),
        ("runs", "0004_profiles_and_trials"),
        ("runs", "0005_placement_ports"),
        ("runs", "0006_trial_candidates"),
        ("runs", "0007_model_unavailable"),
        ("runs", "0008_host_ends"),
        ("runs", "0009_queue_turn_and_waits"),
        ("runs", "0010_run_page"),
        ("runs", "0011_outlines_and_trends"),
        ("runs", "0012_stored_completions"),
        ("runs", "0013_fill_stored_completions"),
        ("runs", "0014_list_indexes"),
        ("runs", "0015_shipped_health_presets"),
        ("runs", "0016_fill_outlines_and_trends"),
        ("runs", "0017_bounded_completions"),
        ("runs", "0018_count_stored_completions"),
        ("runs", "0019_reward_failed"),
        ("runs", "0019_reward_versions"),
        ("runs", "0020_fill_reward_versions"),
        ("runs", "0021_drop_reward_config"),
    ]

    dependencies = [
        ('datasets', '0001_tables'),
        ('hardware', '0001_tables'),
        ('rewards', '0001_tables'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='MetricChunk',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('metric', models.CharField(max_length=200)),
                ('first_seq', models.BigIntegerField()),
                ('last_seq', models.BigIntegerField()),
                ('points', models.IntegerField()),
                ('data', models.BinaryField()),
            ],
            options={
                'ordering': ('run', 'metric', 'first_seq'),
            },
        ),
        migrations.CreateModel(
            name='Run',
            fields=[
                ('id', models.CharField(default=runs.engine.models.new_run_id, editable=False, max_length=16, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=120)),
                ('kind', models.CharField(default='train', max_length=16)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('spec', models.JSONField()),
                ('last_seq', models.BigIntegerField(default=0)),
                ('step', models.IntegerField(default=0)),
                ('max_steps', models.IntegerField(null=True)),
                ('last_metrics', models.JSONField(default=dict)),
                ('launch_key', models.CharField(max_length=64, null=True, unique=True)),
                ('folded_seq', models.BigIntegerField(default=0)),
                ('tags', models.JSONField(default=list)),
                ('notes', models.TextField(blank=True)),
                ('archived_at', models.DateTimeField(null=True)),
                ('trend', models.JSONField(default=list)),
                ('trend_of', models.IntegerField(default=0)),
                ('health', models.JSONField(default=dict)),
                ('dataset_version', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='runs', to='datasets.datasetversion')),
                ('host', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to='hardware.host')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='runs', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('-created_at',),
            },
        ),
        migrations.CreateModel(
            name='Attempt',
            fields=[
                ('id', models.CharField(editable=False, max_length=24, primary_key=True, serialize=False)),
                ('number', models.IntegerField()),
                ('status', models.CharField(choices=[('queued', 'queued'), ('starting', 'starting'), ('running', 'running'), ('stopping', 'stopping'), ('succeeded', 'succeeded'), ('failed', 'failed'), ('stopped', 'stopped')], default='queued', max_length=12)),
                ('reason', models.CharField(blank=True, choices=[('completed', 'completed'), ('stopped_by_user', 'stopped_by_user'), ('cancelled', 'cancelled'), ('trainer_exited', 'trainer_exited'), ('no_steps', 'no_steps'), ('spec_refused', 'spec_refused'), ('model_unavailable', 'model_unavailable'), ('vllm_exited', 'vllm_exited'), ('vllm_not_ready', 'vllm_not_ready'), ('vllm_hung', 'vllm_hung'), ('port_in_use', 'port_in_use'), ('gpus_busy', 'gpus_busy'), ('reward_failed', 'reward_failed'), ('oom', 'oom'), ('disk_full', 'disk_full'), ('folder_lost', 'folder_lost'), ('supervisor_lost', 'supervisor_lost'), ('supervisor_error', 'supervisor_error'), ('host_lost', 'host_lost'), ('launch_failed', 'launch_failed')], max_length=24)),
                ('detail', models.TextField(blank=True)),
                ('placement', models.JSONField(null=True)),
                ('first_seq', models.BigIntegerField(null=True)),
                ('last_seq', models.BigIntegerField(default=0)),
                ('resume_from', models.TextField(blank=True)),
                ('resume_step', models.IntegerField(default=0)),
                ('priority', models.IntegerField(default=0)),
                ('turn', models.FloatField(default=time.time)),
                ('waits_for', models.CharField(blank=True, max_length=200)),
                ('waits_how', models.CharField(blank=True, choices=[('held', 'held'), ('quarantined', 'quarantined'), ('kept', 'kept')], max_length=12)),
                ('phase', models.CharField(blank=True, max_length=24)),
                ('phase_detail', models.TextField(blank=True)),
                ('exit_codes', models.JSONField(default=dict)),
                ('receipt', models.JSONField(null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('dispatched_at', models.DateTimeField(null=True)),
                ('launches_sent', models.IntegerField(default=0)),
                ('launch_sent_at', models.DateTimeField(null=True)),
                ('claimed_at', models.DateTimeField(null=True)),
                ('started_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('last_seen_at', models.DateTimeField(null=True)),
                ('boot_id', models.CharField(blank=True, max_length=64)),
                ('supervisor_pid', models.IntegerField(null=True)),
                ('reap_sent_at', models.DateTimeField(null=True)),
                ('stop_requested_at', models.DateTimeField(null=True)),
                ('stop_mode', models.CharField(blank=True, choices=[('save', 'save'), ('now', 'now')], max_length=8)),
                ('samples_ack', models.IntegerField(default=0)),
                ('host', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, to='hardware.host')),
                ('stop_requested_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('run', 'number'),
            },
        ),
        migrations.CreateModel(
            name='ChunkOutline',
            fields=[
                ('chunk', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='outline', serialize=False, to='runs.metricchunk')),
                ('data', models.BinaryField()),
            ],
        ),
        migrations.CreateModel(
            name='HealthPreset',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=80, unique=True)),
                ('slug', models.CharField(max_length=40, null=True, unique=True)),
                ('bounds', models.JSONField(default=dict)),
                ('source', models.TextField(blank=True)),
                ('is_default', models.BooleanField(default=False)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('owner', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='Lease',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('resource', models.CharField(max_length=32)),
                ('state', models.CharField(choices=[('held', 'held'), ('quarantined', 'quarantined'), ('released', 'released')], default='held', max_length=12)),
                ('taken_at', models.DateTimeField(auto_now_add=True)),
                ('released_at', models.DateTimeField(null=True)),
                ('released_by', models.CharField(blank=True, max_length=150)),
                ('attempt', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='leases', to='runs.attempt')),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='leases', to='hardware.host')),
            ],
        ),
        migrations.CreateModel(
            name='LogChunk',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=16)),
                ('offset', models.BigIntegerField()),
                ('data', models.BinaryField()),
                ('attempt', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='runs.attempt')),
            ],
            options={
                'ordering': ('attempt', 'name', 'offset'),
            },
        ),
        migrations.CreateModel(
            name='ProfileTrial',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('model', models.CharField(max_length=500)),
                ('refused', models.JSONField(default=list)),
                ('launch_key', models.CharField(max_length=64, null=True, unique=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('dataset_version', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, to='datasets.datasetversion')),
                ('host', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, to='hardware.host')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                ('reward_version', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='rewards.rewardversion')),
            ],
            options={
                'ordering': ('-created_at',),
            },
        ),
        migrations.CreateModel(
            name='SampleStore',
            fields=[
                ('run', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, serialize=False, to='runs.run')),
                ('size', models.BigIntegerField(default=0)),
                ('one_in', models.IntegerField(default=1)),
                ('whole_from', models.IntegerField(default=0)),
                ('completions', models.BigIntegerField(default=0)),
                ('groups_from', models.IntegerField(default=0)),
            ],
        ),
        migrations.AddField(
            model_name='run',
            name='preset',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, to='runs.healthpreset'),
        ),
        migrations.AddField(
            model_name='run',
            name='profile',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, to='hardware.hardwareprofile'),
        ),
        migrations.AddField(
            model_name='run',
            name='reward_version',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='runs', to='rewards.rewardversion'),
        ),
        migrations.AddField(
            model_name='run',
            name='trial',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='runs', to='runs.profiletrial'),
        ),
        migrations.CreateModel(
            name='PromptProgress',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('row', models.IntegerField()),
                ('visits', models.IntegerField(default=0)),
                ('completions', models.IntegerField(default=0)),
                ('solved', models.IntegerField(default=0)),
                ('first_step', models.IntegerField()),
                ('last_step', models.IntegerField()),
                ('first_solved_step', models.IntegerField(null=True)),
                ('first_mean', models.FloatField(null=True)),
                ('last_mean', models.FloatField(null=True)),
                ('best', models.FloatField(null=True)),
                ('gone', models.JSONField(default=dict)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='prompts', to='runs.run')),
            ],
        ),
        migrations.CreateModel(
            name='MetricRow',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('seq', models.BigIntegerField()),
                ('t', models.FloatField()),
                ('kind', models.CharField(choices=[('train', 'train'), ('system', 'system'), ('vllm', 'vllm')], max_length=8)),
                ('step', models.IntegerField(null=True)),
                ('values', models.JSONField()),
                ('superseded', models.BooleanField(default=False)),
                ('attempt', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='runs.attempt')),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='runs.run')),
            ],
        ),
        migrations.AddField(
            model_name='metricchunk',
            name='run',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='runs.run'),
        ),
        migrations.AddField(
            model_name='attempt',
            name='run',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='attempts', to='runs.run'),
        ),
        migrations.AddField(
            model_name='attempt',
            name='waits_on',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='runs.run'),
        ),
        migrations.CreateModel(
            name='RunEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('seq', models.BigIntegerField(null=True)),
                ('at', models.DateTimeField()),
                ('kind', models.CharField(max_length=24)),
                ('step', models.IntegerField(null=True)),
                ('actor', models.CharField(blank=True, max_length=150)),
                ('data', models.JSONField(default=dict)),
                ('attempt', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='events', to='runs.attempt')),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='events', to='runs.run')),
            ],
            options={
                'ordering': ('id',),
            },
        ),
        migrations.CreateModel(
            name='SampleRow',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('line', models.IntegerField()),
                ('step', models.IntegerField()),
                ('row', models.IntegerField(null=True)),
                ('mode', models.CharField(default='train', max_length=8)),
                ('reward_low', models.FloatField(null=True)),
                ('reward_high', models.FloatField(null=True)),
                ('reward_mean', models.FloatField(null=True)),
                ('completions', models.IntegerField(default=0)),
                ('solved', models.IntegerField(default=0)),
                ('size', models.IntegerField(default=0)),
                ('superseded', models.BooleanField(default=False)),
                ('data', models.JSONField()),
                ('attempt', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='runs.attempt')),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='samples', to='runs.run')),
            ],
        ),
        migrations.CreateModel(
            name='SavedView',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=60)),
                ('query', models.TextField()),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='saved_views', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.AddConstraint(
            model_name='healthpreset',
            constraint=models.UniqueConstraint(condition=models.Q(('is_default', True)), fields=('is_default',), name='one_default_preset'),
        ),
        migrations.AddConstraint(
            model_name='lease',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ['held', 'quarantined'])), fields=('host', 'resource'), name='one_lease_a_resource'),
        ),
        migrations.AddConstraint(
            model_name='logchunk',
            constraint=models.UniqueConstraint(fields=('attempt', 'name', 'offset'), name='log_offset'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(fields=['-created_at'], name='run_newest'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(fields=['archived_at', '-created_at', 'kind'], name='run_listed'),
        ),
        migrations.AddConstraint(
            model_name='promptprogress',
            constraint=models.UniqueConstraint(fields=('run', 'row'), name='prompt_of_run'),
        ),
        migrations.AddConstraint(
            model_name='metricrow',
            constraint=models.UniqueConstraint(fields=('run', 'seq'), name='metric_seq'),
        ),
        migrations.AddConstraint(
            model_name='metricchunk',
            constraint=models.UniqueConstraint(fields=('run', 'metric', 'first_seq'), name='chunk_start'),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(fields=['status'], name='attempt_status'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.UniqueConstraint(fields=('run', 'number'), name='attempt_number'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.UniqueConstraint(condition=models.Q(('status__in', ['queued', 'starting', 'running', 'stopping'])), fields=('run',), name='one_live_attempt'),
        ),
        migrations.AddIndex(
            model_name='runevent',
            index=models.Index(fields=['run', 'seq'], name='runs_runeve_run_id_0e30da_idx'),
        ),
        migrations.AddConstraint(
            model_name='runevent',
            constraint=models.UniqueConstraint(fields=('run', 'seq'), name='event_seq'),
        ),
        migrations.AddIndex(
            model_name='samplerow',
            index=models.Index(fields=['run', '-step'], name='runs_sample_run_id_c67d57_idx'),
        ),
        migrations.AddIndex(
            model_name='samplerow',
            index=models.Index(fields=['run', 'row', 'step'], name='runs_sample_run_id_5a1b5a_idx'),
        ),
        migrations.AddConstraint(
            model_name='samplerow',
            constraint=models.UniqueConstraint(fields=('attempt', 'line'), name='sample_line'),
        ),
        migrations.AddConstraint(
            model_name='savedview',
            constraint=models.UniqueConstraint(fields=('owner', 'name'), name='view_name'),
        ),
        migrations.RunPython(lay, migrations.RunPython.noop),
    ]
