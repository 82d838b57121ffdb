from django.db import migrations, models

REASONS = (
    "completed",
    "stopped_by_user",
    "limit_reached",
    "early_stopped",
    "preempted",
    "host_shutdown",
    "host_preempted",
    "cancelled",
    "trainer_exited",
    "no_steps",
    "spec_refused",
    "checkpoint_unusable",
    "model_unavailable",
    "vllm_exited",
    "vllm_not_ready",
    "vllm_hung",
    "hung",
    "port_in_use",
    "gpus_busy",
    "reward_failed",
    "atropos_unreachable",
    "oom",
    "disk_full",
    "folder_lost",
    "supervisor_lost",
    "supervisor_error",
    "host_lost",
    "launch_failed",
)


class Migration(migrations.Migration):
    dependencies = [("runs", "0003_recent_visits")]

    operations = [
        migrations.AddField("attempt", "resumes_at", models.DateTimeField(db_index=True, null=True)),
        migrations.AlterField(
            "attempt",
            "reason",
            models.CharField(blank=True, choices=[(reason, reason) for reason in REASONS], max_length=24),
        ),
    ]
