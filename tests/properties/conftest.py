"""Hypothesis profiles for the properties: `default` keeps all of them under three minutes, `nightly` searches long.

HYPOTHESIS_PROFILE chooses. There is no deadline: the first call of a kernel compiles it.
"""

import os

from hypothesis import HealthCheck, settings

_SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile("default", deadline=None, max_examples=100, suppress_health_check=_SLOW_IS_FINE)
settings.register_profile(
    "nightly", deadline=None, max_examples=10_000, suppress_health_check=_SLOW_IS_FINE, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
