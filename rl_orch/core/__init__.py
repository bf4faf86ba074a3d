"""Orchestration: states, store, registry, supervision and the verbs. No torch, no HTTP."""
