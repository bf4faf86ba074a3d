"""The Spec: what is wanted. `groups.py` has the options, `resolve.py` where values come from.

Nothing here imports torch, gymnasium or a database.
"""
