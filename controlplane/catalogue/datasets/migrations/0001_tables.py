import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("datasets", "0001_initial"),
        ("datasets", "0002_check_times"),
        ("datasets", "0003_sources_and_lineage"),
        ("datasets", "0004_fetching_and_split"),
    ]

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Tokenizer',
            fields=[
                ('sha256', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('model', models.CharField(db_index=True, max_length=500)),
                ('has_chat_template', models.BooleanField(default=False)),
                ('bytes', models.BigIntegerField(default=0)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ('model', '-created_at'),
            },
        ),
        migrations.CreateModel(
            name='Dataset',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=80, unique=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('owner', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='DatasetVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.IntegerField()),
                ('status', models.CharField(choices=[('fetching', 'fetching'), ('checking', 'checking'), ('needs_mapping', 'needs_mapping'), ('ready', 'ready'), ('invalid', 'invalid')], default='checking', max_length=16)),
                ('file_name', models.CharField(max_length=255)),
                ('bytes', models.BigIntegerField(default=0)),
                ('rows', models.IntegerField(default=0)),
                ('columns', models.JSONField(default=list)),
                ('mapping', models.JSONField(default=dict)),
                ('report', models.JSONField(default=dict)),
                ('sha256', models.CharField(blank=True, max_length=64)),
                ('source_kind', models.CharField(choices=[('upload', 'upload'), ('hub', 'hub'), ('path', 'path'), ('derived', 'derived')], default='upload', max_length=16)),
                ('source', models.JSONField(default=dict)),
                ('source_sha256', models.CharField(blank=True, db_index=True, max_length=64)),
                ('split', models.JSONField(default=dict)),
                ('validation_rows', models.IntegerField(default=0)),
                ('tokenizer', models.CharField(blank=True, max_length=64)),
                ('token_limit', models.IntegerField(null=True)),
                ('archived_at', models.DateTimeField(null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('ready_at', models.DateTimeField(null=True)),
                ('queued_at', models.DateTimeField(null=True)),
                ('check_started_at', models.DateTimeField(null=True)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('dataset', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='datasets.dataset')),
                ('parent', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='children', to='datasets.datasetversion')),
            ],
            options={
                'ordering': ('dataset', '-number'),
                'constraints': [models.UniqueConstraint(fields=('dataset', 'number'), name='dataset_version_number')],
            },
        ),
    ]
