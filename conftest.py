"""What holds for every test: property tests are judged by what they find, never by how long an example took."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("forebay", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("forebay")
