"""Which token each operation of the API needs, by its route's name without v1_. A new one needs its name here."""

from __future__ import annotations

READ = """
base_models chat compare corpora corpus dataset datasets deleted environment environment_yaml environments events host
host_disk hosts inspection join_code learnability me model model_card model_download model_jobs models preset presets
profile profile_memory profile_yaml profiles queue reference_check reference_checks reference_failures reward
reward_yaml rewards rows run run_checkpoints run_completions run_disk run_dry_run run_evaluations run_events
run_export run_health run_log run_logs run_metrics run_prompts run_receipts run_series run_spec run_waterfall runs
search serving tokens trial trials version version_export version_problems warm_servers
"""

OPERATE = """
chat_ask chat_scores chat_start chat_stop corpus_change corpus_delete corpus_new corpus_text dataset_change
dataset_delete dataset_hub dataset_path dataset_tasks dataset_typed dataset_upload delete_for_good environment_call
environment_change environment_delete environment_duplicate environment_model environment_new environment_play
environment_save environment_scores host_change host_give_up host_release host_remove host_revoke inspect
join_code_new launch learnability_every learnability_filter mapping mapping_preview model_archive model_benchmark
model_delete model_gguf model_merge preflight preflight_profiles preset_change preset_copy preset_delete
profile_change profile_delete profile_new queue_move queue_remove reference_check_new reference_check_stop
reference_leave_out restore reward_change reward_delete reward_duplicate reward_new reward_replay reward_save
reward_try run_change run_delete run_evaluate run_gateway run_groups run_no_resume run_resume run_stop serve_stop
token_revoke trial_new trial_stop version_again version_cancel version_change version_delete version_derive
version_hub version_leave_out version_path version_tasks version_try_again version_typed version_upload
warm_server_end
"""

ADMIN = """
alert_again alert_change alert_delete alert_deliveries alert_new alert_test alerts model_push secret_change
secret_delete secret_new secrets serve user_change user_link user_new users
"""
