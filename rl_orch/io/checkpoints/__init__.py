"""Checkpoints: their files, their catalogue, replay segments, and what a run resumes from."""

from rl_orch.plugins import exports

__getattr__ = exports(__name__, {"checkpoint_files": ("load",)})
