"""How hypothesis runs here: no time limit for one example, since the machine may be shared."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("ops", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("ops")
