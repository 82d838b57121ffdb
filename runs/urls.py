"""URLs of runs and of everything that is built on the catalogue."""

from typing import Any

from django.urls import include, path

from runs.api import application as people_api
from runs.api import reference_views
from runs.engine.alerts import views as alerts_views
from runs.engine.gateway import endpoint as gateway_endpoint
from runs.engine.machines import views as machine_views
from runs.engine.scheduling import views as queue_views
from runs.engine.warm import overview as warm_overview
from runs.insight.completions import views as completions_views
from runs.insight.evaluations import views as evaluation_views
from runs.insight.health import views as health_views
from runs.insight.metrics import views as metrics_views
from runs.intake import hosts as hosts_api
from runs.intake.host_api import views as host_api_views
from runs.launch.learnability import views as learnability_views
from runs.launch.new_run import exchange_views
from runs.launch.new_run import views as new_run_views
from runs.launch.trials import views as trial_views
from runs.pages.compare import views as compare_views
from runs.pages.first_steps import views as first_steps_views
from runs.pages.hosts import joining_views, tokenizer_views
from runs.pages.hosts import views as hosts_views
from runs.pages.live import consumers
from runs.pages.model_pages import action_views as model_actions
from runs.pages.model_pages import views as model_views
from runs.pages.monitoring import views as monitoring_views
from runs.pages.playground import editor_views, episode_views, replay_views
from runs.pages.playground import views as playground_views
from runs.pages.reports import views as reports_views
from runs.pages.run_list import views as run_list_views
from runs.pages.run_page import checkpoint_views, log_views, notes_and_tags_views
from runs.pages.run_page import views as run_page_views
from runs.pages.search import finding
from runs.pages.secrets import views as secrets_views
from runs.pages.served import keyed_views
from runs.pages.served import views as served_views
from runs.pages.sharing import views as sharing_views
from runs.pages.trash import views as trash_views

urlpatterns = [
    # For containers and Prometheus
    path("healthz", monitoring_views.healthz, name="health"),
    path("readyz", monitoring_views.readyz, name="ready"),
    path("metrics", monitoring_views.metrics, name="prometheus_metrics"),
    # The list
    path("", run_list_views.home, name="home"),
    path("demo/", first_steps_views.demo, name="demo_run"),
    path("search/", finding.palette, name="search"),
    # First steps
    path("start/", first_steps_views.start, name="start"),
    path("start/<slug:slug>/", first_steps_views.recipe, name="recipe"),
    path("start/<slug:slug>/prepare", first_steps_views.prepare, name="prepare_recipe"),
    path("runs/", run_list_views.runs, name="runs"),
    path("runs/csv", run_list_views.runs_csv, name="runs_csv"),
    path("runs/stop", run_list_views.stop_several, name="stop_several"),
    path("runs/archive", run_list_views.archive_several, name="archive_several"),
    path("runs/unarchive", run_list_views.unarchive_several, name="unarchive_several"),
    # Deleting, restoring, renaming
    path("deleted/", trash_views.deleted, name="deleted"),
    path("deleted/<slug:kind_slug>/", trash_views.delete, name="delete"),
    path("deleted/<slug:kind_slug>/<slug:key>/restore", trash_views.restore, name="restore"),
    path("deleted/<slug:kind_slug>/<slug:key>/for-good", trash_views.purge, name="delete_for_good"),
    path("names/<slug:kind_slug>/<slug:key>/", trash_views.name, name="rename"),
    path("runs/tag", run_list_views.tag_several, name="tag_several"),
    path("runs/views", run_list_views.save_view, name="save_view"),
    path("runs/views/<int:view_id>/delete", run_list_views.delete_view, name="delete_view"),
    # A new run
    path("runs/new/", new_run_views.new_run, name="new_run"),
    path("runs/new/check", new_run_views.check_run, name="check_run"),
    path("runs/new/profiles", new_run_views.choose_profile, name="choose_profile"),
    path("runs/new/commands", new_run_views.commands, name="launch_commands"),
    path("runs/new/learnability", new_run_views.check_learnability, name="check_learnability"),
    path("runs/new/dry-run", new_run_views.dry_run, name="dry_run"),
    path("runs/new/import", exchange_views.import_config, name="import_config"),
    path("runs/new/search-example", exchange_views.search_example, name="search_example"),
    path("runs/new/export", exchange_views.export_draft, name="export_draft"),
    path("runs/new/model", new_run_views.inspect_model, name="inspect_model"),
    path("runs/new/model/<int:inspection_id>", new_run_views.inspection, name="inspection"),
    path("runs/<slug:run_id>/clone/", new_run_views.clone, name="clone"),
    path("runs/<slug:run_id>/fix/", new_run_views.fix, name="run_fix"),
    path("runs/<slug:run_id>/dry-run", new_run_views.run_dry_run, name="run_dry_run"),
    path("runs/<slug:run_id>/export", exchange_views.run_export, name="run_export"),
    path("runs/<slug:run_id>/learnability/", learnability_views.learnability, name="learnability"),
    path("runs/<slug:run_id>/learnability/every-prompt", new_run_views.check_every_prompt, name="check_every_prompt"),
    path("runs/<slug:run_id>/learnability/filter", learnability_views.filter_prompts, name="filter_prompts"),
    path("runs/<slug:run_id>/evaluations/", evaluation_views.evaluations, name="evaluations"),
    # Models
    path("models/", model_views.models, name="models"),
    path("models/<int:event_id>/", model_views.model, name="model"),
    path("models/<int:event_id>/merge", model_actions.merge, name="merge_model"),
    path("models/<int:event_id>/gguf", model_actions.convert, name="convert_model"),
    path("models/<int:event_id>/delete", model_actions.delete, name="delete_model"),
    path("models/<int:event_id>/benchmark", model_actions.benchmark, name="benchmark_model"),
    path("models/<int:event_id>/push", model_actions.push, name="push_model"),
    path("models/<int:event_id>/archive", model_actions.archive, name="archive_model"),
    path("models/<int:event_id>/archive/<slug:job_id>", model_actions.download, name="model_archive"),
    path("models/<int:event_id>/serve/", keyed_views.serve, name="model_serve"),
    path("models/<int:event_id>/chat/", served_views.chat, name="model_chat"),
    path("models/<int:event_id>/chat/state", served_views.state, name="model_chat_state"),
    path("models/<int:event_id>/chat/ask", served_views.ask, name="model_chat_ask"),
    path("models/<int:event_id>/chat/prompt", served_views.prompt, name="model_chat_prompt"),
    path("models/<int:event_id>/chat/stop", served_views.stop, name="model_chat_stop"),
    path("models/<int:event_id>/chat/turns/<int:turn_id>/", served_views.turn, name="model_chat_turn"),
    path("models/<int:event_id>/chat/turns/<int:turn_id>/scores", served_views.scores, name="model_chat_scores"),
    # Comparison
    path("runs/compare/", compare_views.compare, name="compare_runs"),
    path("runs/compare/table/", compare_views.table, name="compare_table"),
    path("runs/compare/step-times/", compare_views.step_times, name="compare_step_times"),
    path("runs/compare/waterfalls/", compare_views.waterfalls, name="compare_waterfalls"),
    path("runs/compare/series.json", compare_views.series, name="compare_series"),
    path("runs/compare/report", reports_views.comparison_report, name="compare_report"),
    path("runs/compare/prompts/", compare_views.prompts, name="compare_prompts"),
    # A run's page
    path("runs/<slug:run_id>/", run_page_views.run, name="run"),
    path("runs/<slug:run_id>/head/", run_page_views.head, name="run_head"),
    path("runs/<slug:run_id>/checkpoints/", checkpoint_views.tab, name="run_checkpoints"),
    path("runs/<slug:run_id>/spec/", run_page_views.spec, name="run_spec"),
    path("runs/<slug:run_id>/gateway/key", gateway_endpoint.key, name="run_gateway_key"),
    path("runs/<slug:run_id>/stop", run_page_views.stop, name="run_stop"),
    path("runs/<slug:run_id>/resume", checkpoint_views.resume, name="run_resume"),
    path("runs/<slug:run_id>/no-resume", run_page_views.no_resume, name="run_no_resume"),
    path("runs/<slug:run_id>/tags", notes_and_tags_views.tags, name="run_tags"),
    path("runs/<slug:run_id>/notes", notes_and_tags_views.run_notes, name="run_notes"),
    path("runs/<slug:run_id>/logs/", log_views.logs, name="run_logs"),
    path("runs/<slug:run_id>/logs/<str:name>", log_views.log, name="run_log"),
    path("runs/<slug:run_id>/logs/<str:name>/search", log_views.search, name="run_log_search"),
    path("runs/<slug:run_id>/events/", log_views.events, name="run_events"),
    path("runs/<slug:run_id>/series.json", metrics_views.series, name="run_series"),
    path("runs/<slug:run_id>/waterfall/", metrics_views.waterfall, name="run_waterfall"),
    path("runs/<slug:run_id>/follow", alerts_views.follow, name="run_follow"),
    path("runs/<slug:run_id>/report", reports_views.run_report, name="run_report"),
    path("runs/<slug:run_id>/share/", sharing_views.share, name="run_share"),
    path("runs/<slug:run_id>/share/<int:link_id>/revoke", sharing_views.revoke, name="run_share_revoke"),
    path("runs/<slug:run_id>/metrics.json", metrics_views.metrics, name="run_metrics"),
    path("runs/<slug:run_id>/completions/", completions_views.completions, name="run_completions"),
    path("runs/<slug:run_id>/completions/<int:sample_id>/", completions_views.group, name="run_completion_group"),
    path("runs/<slug:run_id>/funnel/", completions_views.funnel_page, name="run_funnel"),
    path("runs/<slug:run_id>/prompts/", completions_views.prompts, name="run_prompts"),
    path("runs/<slug:run_id>/prompts/map.json", completions_views.prompts_map, name="run_prompts_map"),
    path("runs/<slug:run_id>/prompts/export", completions_views.prompts_export, name="run_prompts_export"),
    path("runs/<slug:run_id>/prompts/<int:row>/", completions_views.prompt, name="run_prompt"),
    # A shared run, for whoever has a link
    path("shared/<str:token>/", sharing_views.shared, name="shared"),
    path("shared/<str:token>/now", sharing_views.shared_now, name="shared_now"),
    path("shared/<str:token>/series.json", sharing_views.shared_series, name="shared_series"),
    # Health presets
    path("settings/health/", health_views.presets, name="health_presets"),
    path("settings/health/<int:preset_id>/", health_views.preset, name="health_preset"),
    path("settings/health/<int:preset_id>/copy", health_views.copy, name="health_preset_copy"),
    path("settings/health/<int:preset_id>/default", health_views.make_default, name="health_preset_default"),
    path("settings/health/<int:preset_id>/delete", health_views.delete, name="health_preset_delete"),
    path("runs/<slug:run_id>/preset", health_views.choose, name="run_preset"),
    # Alerts
    path("settings/alerts/", alerts_views.alerts, name="alerts"),
    path("settings/alerts/deliveries/", alerts_views.deliveries, name="alert_deliveries"),
    path("settings/alerts/deliveries/<int:delivery_id>/again/", alerts_views.retry, name="alert_again"),
    path("settings/alerts/<int:target_id>/", alerts_views.target, name="alert_target"),
    path("settings/alerts/<int:target_id>/test/", alerts_views.test, name="alert_test"),
    path("settings/alerts/<int:target_id>/delete/", alerts_views.delete, name="alert_delete"),
    # Secrets
    path("settings/secrets/", secrets_views.secrets, name="secrets"),
    path("settings/secrets/<int:secret_id>/", secrets_views.secret, name="secret"),
    path("settings/secrets/<int:secret_id>/delete/", secrets_views.delete, name="secret_delete"),
    # The editor of a reward config, with the playground and the replay
    path("rewards/new/", editor_views.new, name="reward_config_new"),
    path("rewards/import/", editor_views.import_, name="reward_config_import"),
    path("rewards/sample/", playground_views.sample, name="reward_sample"),
    path("rewards/runs/", playground_views.runs, name="reward_runs"),
    path("rewards/replay/", replay_views.replay, name="reward_replay"),
    path("rewards/try/", playground_views.try_out, name="reward_try"),
    path("rewards/code/", editor_views.check, name="reward_code_check"),
    path("rewards/<int:config_id>/", editor_views.edit, name="reward_config"),
    # The playground of an environment
    path("environments/tool/", episode_views.check_tool, name="environment_tool_check"),
    path("environments/<int:environment_id>/v<int:number>/play/", episode_views.page, name="environment_play"),
    path("environments/<int:environment_id>/v<int:number>/row/", episode_views.call_row, name="environment_call_row"),
    path("environments/<int:environment_id>/v<int:number>/call/", episode_views.call, name="environment_call"),
    path("environments/<int:environment_id>/v<int:number>/move/", episode_views.play, name="environment_move"),
    path("environments/<int:environment_id>/v<int:number>/model/", episode_views.model, name="environment_model"),
    path("environments/<int:environment_id>/v<int:number>/scores/", episode_views.scores, name="environment_scores"),
    # Hosts and the queue
    path("hardware/", hosts_views.hardware, name="hardware"),
    path("hardware/leases/<int:lease_id>/release/", hosts_views.release_lease, name="release_lease"),
    path("hardware/hosts/add/", joining_views.add, name="add_host"),
    path("hardware/hosts/add/<int:code_id>/", joining_views.join_code_state, name="added_host"),
    path("hardware/machines/new/<slug:engine>/", machine_views.source_new, name="machine_source_new"),
    path("hardware/sources/<int:source_id>/", machine_views.source, name="machine_source"),
    path("hardware/sources/<int:source_id>/delete/", machine_views.source_delete, name="machine_source_delete"),
    path("hardware/machines/<int:machine_id>/release/", machine_views.release, name="machine_release"),
    path("hardware/hosts/<int:host_id>/revoke/", joining_views.revoke, name="revoke_host"),
    path("hardware/hosts/<int:host_id>/drain/", hosts_views.drain, name="drain_host"),
    path("hardware/hosts/<int:host_id>/unsandboxed/", hosts_views.allow_unsandboxed, name="host_unsandboxed"),
    path("hardware/hosts/<int:host_id>/price/", hosts_views.price, name="host_price"),
    path("hardware/hosts/<int:host_id>/serving/", keyed_views.address, name="host_serving"),
    path("hardware/hosts/<int:host_id>/give-up/", hosts_views.give_up_host, name="give_up_host"),
    path("hardware/hosts/<int:host_id>/remove/", hosts_views.remove_host, name="remove_host"),
    path("hardware/warm/<slug:run_id>/end", warm_overview.end, name="warm_end"),
    path("hardware/queue/<slug:run_id>/move", queue_views.queue_move, name="queue_move"),
    path("hardware/queue/<slug:run_id>/priority", queue_views.queue_priority, name="queue_priority"),
    path("hardware/queue/<slug:run_id>/remove/", queue_views.queue_remove, name="queue_remove"),
    # Model inspections
    path("datasets/<int:dataset_id>/<int:number>/tokenizer/", tokenizer_views.tokenizer, name="dataset_tokenizer"),
    # Trials of profiles
    path("hardware/trials/new/", trial_views.trial_new, name="trial_new"),
    path("hardware/trials/<int:trial_id>/", trial_views.trial, name="trial"),
    path("hardware/trials/<int:trial_id>/stop", trial_views.trial_stop, name="trial_stop"),
    # The API for people's programs
    path("help/api/", reference_views.reference, name="api_reference"),
    path("api/v1/", include(people_api.urlpatterns)),
    # The host API
    path("api/attempts/<slug:attempt_id>/claim", host_api_views.claim, name="api_claim"),
    path("api/attempts/<slug:attempt_id>/dataset", host_api_views.dataset, name="api_dataset"),
    path("api/attempts/<slug:attempt_id>/sources/<slug:sha256>", host_api_views.source, name="api_source"),
    path("api/attempts/<slug:attempt_id>/corpora/<slug:sha256>", host_api_views.corpus, name="api_corpus"),
    path("api/attempts/<slug:attempt_id>/sync", host_api_views.sync, name="api_sync"),
    path("api/attempts/<slug:attempt_id>/samples", host_api_views.samples, name="api_samples"),
    path("api/attempts/<slug:attempt_id>/logs/<slug:name>", host_api_views.logs, name="api_logs"),
    path("api/attempts/<slug:attempt_id>/archive", host_api_views.archive, name="api_archive"),
    path("api/attempts/<slug:attempt_id>/reaped", host_api_views.reaped, name="api_reaped"),
    path("api/attempts/<slug:attempt_id>/store", host_api_views.store, name="api_store"),
    path("api/attempts/<slug:attempt_id>/store/signature", host_api_views.store_signature, name="api_store_signature"),
    path("api/attempts/<slug:attempt_id>/stored", host_api_views.report_stored, name="api_stored"),
    path("api/attempts/<slug:attempt_id>/deleted", host_api_views.deleted, name="api_deleted"),
    path("api/attempts/<slug:attempt_id>/not_launched", host_api_views.not_launched, name="api_not_launched"),
    path("api/hosts/announce", hosts_api.announce, name="api_host_announce"),
    path("api/hosts/leave", hosts_api.leave, name="api_host_leave"),
    path("api/inspections/<int:inspection_id>", hosts_api.inspection, name="api_inspection"),
    path("api/hosts/<str:host>/inspections/<int:inspection_id>/tokenizer", hosts_api.tokenizer, name="api_tokenizer"),
]

# Django's `path` is typed for views; Channels' router takes ASGI applications in their place.
_socket: Any = path
websocket_urlpatterns: list[Any] = [
    _socket("ws/runs/", consumers.RunListConsumer.as_asgi()),
    _socket("ws/runs/<slug:run_id>/", consumers.RunConsumer.as_asgi()),
    # Channels would answer any other address with a traceback in the log.
    _socket("", consumers.UnknownConsumer.as_asgi()),
    _socket("<path:unknown>", consumers.UnknownConsumer.as_asgi()),
]
