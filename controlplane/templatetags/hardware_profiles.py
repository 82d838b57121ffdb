"""`{% words_of profile as words %}`: a short description of a hardware profile."""

from __future__ import annotations

from django import template

from controlplane.hardware.models import HardwareProfile
from controlplane.hardware.profile_words import Words, in_words

register = template.Library()


@register.simple_tag
def words_of(profile: HardwareProfile) -> Words:
    return in_words(profile)
