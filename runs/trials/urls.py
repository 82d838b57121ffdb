"""Trying hardware profiles: below the Hardware page."""

from django.urls import path

from runs.trials import views

urlpatterns = [
    path("new/", views.trial_new, name="trial_new"),
    path("<int:trial_id>/", views.trial, name="trial"),
    path("<int:trial_id>/stop", views.trial_stop, name="trial_stop"),
]
