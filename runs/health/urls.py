"""Addresses of the health presets, and of a run's choice among them."""

from django.urls import path

from runs.health import views

urlpatterns = [
    path("settings/health/", views.presets, name="health_presets"),
    path("settings/health/<int:preset_id>/", views.preset, name="health_preset"),
    path("settings/health/<int:preset_id>/copy", views.copy, name="health_preset_copy"),
    path("settings/health/<int:preset_id>/default", views.make_default, name="health_preset_default"),
    path("settings/health/<int:preset_id>/delete", views.delete, name="health_preset_delete"),
    path("runs/<slug:run_id>/preset", views.choose, name="run_preset"),
]
