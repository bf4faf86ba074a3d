"""The child: each module here is a program that a runner starts in a run directory.

`train` and `evaluate` load torch; `check` does not. Nothing here imports the orchestrator.
"""
