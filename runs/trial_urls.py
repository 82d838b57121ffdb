"""Trying hardware profiles: below the Hardware page."""

from django.urls import path

from runs import trial_views

urlpatterns = [
    path("new/", trial_views.trial_new, name="trial_new"),
    path("<int:trial_id>/", trial_views.trial, name="trial"),
    path("<int:trial_id>/stop", trial_views.trial_stop, name="trial_stop"),
]
