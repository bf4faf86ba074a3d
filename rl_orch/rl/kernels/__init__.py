"""Fused CPU kernels: small networks, their losses and optimisers, without returning to Python."""
