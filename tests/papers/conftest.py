"""As in tests/he: how long an example takes says nothing about whether it is right."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
