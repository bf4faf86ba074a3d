"""Environments made, seeded and described; without torch, since `check` must be quick."""
