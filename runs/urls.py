from typing import Any

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
websocket_urlpatterns: list[Any] = []
