"""Learners: what algorithms share of updates, optimisers and number formats."""
