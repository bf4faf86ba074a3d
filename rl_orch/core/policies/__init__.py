"""Policies at work: evaluated, profiled, exported and played, by children that load torch."""
