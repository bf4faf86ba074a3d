"""Runs under way in a terminal: panel, progress, following, interrupts."""
