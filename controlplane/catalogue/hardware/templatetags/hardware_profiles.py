"""Template tags: `{% words_of profile as words %}` describes a hardware profile briefly, and `{% grouped_profiles
profiles as groups %}` groups profiles by GPUs and memory."""

from django import template

from controlplane.catalogue.hardware.profile_pages import profile_words

register = template.Library()
register.simple_tag(profile_words.describe_profile, name="words_of")
register.simple_tag(profile_words.group_profiles, name="grouped_profiles")
