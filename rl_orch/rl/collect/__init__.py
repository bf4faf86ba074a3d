"""Collecting: rollouts, overlapped or not, and numbered episodes."""
