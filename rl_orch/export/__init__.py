"""Policies as they leave: graphs from raw observations to actions, checked, and sealed in bundles.

Loads torch, so only children do. What a bundle holds can be read without it:
`io/policies/bundles.py`.
"""
