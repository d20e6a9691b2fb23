"""Profiles of Hypothesis: `ci` (as it is) walks the same ways each time; `long` walks new ones, and shrinks what it finds."""

import os

from hypothesis import HealthCheck, Phase, settings

_COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True, "database": None}
settings.register_profile(
    "ci", derandomize=True, max_examples=5, stateful_step_count=6, phases=[Phase.generate], **_COMMON
)
settings.register_profile("long", max_examples=3000, stateful_step_count=12, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
