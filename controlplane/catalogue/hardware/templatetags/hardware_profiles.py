"""`{% words_of profile as words %}`: a short description of a hardware profile; `{% grouped_profiles profiles as
groups %}`: by GPUs and memory."""

from __future__ import annotations

from collections.abc import Iterable

from django import template

from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.hardware.profile_pages import profile_words
from controlplane.catalogue.hardware.profile_pages.profile_words import ProfileWords, WordGroup

register = template.Library()


@register.simple_tag
def words_of(profile: HardwareProfile) -> ProfileWords:
    return profile_words.in_words(profile)


@register.simple_tag
def grouped_profiles(profiles: Iterable[HardwareProfile]) -> list[tuple[WordGroup, list[HardwareProfile]]]:
    return profile_words.grouped(profiles)
