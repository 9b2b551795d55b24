"""Profiles of the property tests: `pytest --hypothesis-profile=long` looks for what the short runs do not meet."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("long", max_examples=1000, deadline=None)
