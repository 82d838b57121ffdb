"""`{% words_of profile as words %}`: a short description of a hardware profile; `{% grouped_profiles profiles as
groups %}`: by GPUs and memory."""

from django import template

from controlplane.catalogue.hardware.profile_pages import profile_words

register = template.Library()
register.simple_tag(profile_words.in_words, name="words_of")
register.simple_tag(profile_words.grouped, name="grouped_profiles")
