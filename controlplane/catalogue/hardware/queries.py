"""Queries for hardware rows, through which all views access them."""

from django.db.models import QuerySet
from django.http import HttpRequest
from django.shortcuts import get_object_or_404

from controlplane.catalogue.hardware.models import HardwareProfile, Host


def profiles_for(request: HttpRequest) -> QuerySet[HardwareProfile]:
    return HardwareProfile.objects.all()


def profile_for(request: HttpRequest, profile_id: int) -> HardwareProfile:
    return get_object_or_404(profiles_for(request), pk=profile_id)


def hosts_for(request: HttpRequest) -> QuerySet[Host]:
    return Host.objects.all()


def host_for(request: HttpRequest, host_id: int) -> Host:
    return get_object_or_404(hosts_for(request), pk=host_id)


def known_host_for(request: HttpRequest, host_id: int) -> Host:
    """Find a host, also a removed one, for repeated clicks and for older rows that refer to it."""
    return get_object_or_404(Host.every, pk=host_id)
