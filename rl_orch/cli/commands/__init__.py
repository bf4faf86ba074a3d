"""The commands of `rlctl`, one module each."""
