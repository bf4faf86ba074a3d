"""Checks that a child makes before a run: the environment, the device, a served policy."""
