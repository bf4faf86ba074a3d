"""Runs: created, supervised, resumed, imported, folded into groups and compared."""
