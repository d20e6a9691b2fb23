"""Measurements, as ratios within one run. Nothing in `tests/` asserts a time."""
