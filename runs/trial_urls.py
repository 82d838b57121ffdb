"""Trying hardware profiles: below the Hardware page."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
