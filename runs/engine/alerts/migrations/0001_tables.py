import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("alerting", "0001_targets_and_deliveries"),
    ]

    dependencies = [
        ('runs', '0001_tables'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='AlertTarget',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=80, unique=True)),
                ('kind', models.CharField(choices=[('webhook', 'Webhook'), ('mail', 'Mail')], default='webhook', max_length=8)),
                ('sealed', models.TextField()),
                ('shown', models.CharField(max_length=200)),
                ('wants', models.JSONField(default=list)),
                ('private_too', models.BooleanField(default=False)),
                ('links_to', models.CharField(max_length=300)),
                ('enabled', models.BooleanField(default=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='AlertDelivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('sent', 'Sent'), ('failed', 'Not sent')], default='waiting', max_length=8)),
                ('tries', models.IntegerField(default=0)),
                ('due_at', models.DateTimeField()),
                ('claim', models.CharField(blank=True, max_length=32)),
                ('error', models.CharField(blank=True, max_length=300)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('sent_at', models.DateTimeField(null=True)),
                ('event', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='runs.runevent')),
                ('target', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='alerting.alerttarget')),
            ],
            options={
                'ordering': ('-id',),
                'indexes': [models.Index(condition=models.Q(('state', 'waiting')), fields=['due_at'], name='waiting_deliveries')],
                'constraints': [models.UniqueConstraint(fields=('target', 'event'), name='told_once')],
            },
        ),
    ]
