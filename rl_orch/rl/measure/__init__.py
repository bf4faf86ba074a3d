"""Measuring: where the time of a training goes, how fast a policy decides."""
