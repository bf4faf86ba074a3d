"""Warm starts: processes that have loaded torch, and kernels compiled ahead."""
