"""Addresses of the completions and of the prompts."""

from django.urls import path

from runs.completions import views

urlpatterns = [
    path("runs/<slug:run_id>/completions/", views.completions, name="run_completions"),
    path("runs/<slug:run_id>/completions/<int:sample_id>/", views.group, name="run_completion_group"),
    path("runs/<slug:run_id>/prompts/", views.prompts, name="run_prompts"),
    path("runs/<slug:run_id>/prompts/map.json", views.prompts_map, name="run_prompts_map"),
    path("runs/<slug:run_id>/prompts/export", views.prompts_export, name="run_prompts_export"),
    path("runs/<slug:run_id>/prompts/<int:row>/", views.prompt, name="run_prompt"),
]
