"""Policies: networks, distributions, observations, exploration."""
