"""The words of scripts and notebooks: `rl_orch.train`, `rl_orch.runs` and `rl_orch.load_policy`.

They say in the field's words what the orchestrator does. Only `policy.py` loads torch; each is
imported with the first use of its name, so that `import rl_orch` costs nothing.
"""
