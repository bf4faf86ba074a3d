"""Learning: environments, policies, algorithms and the training loop.

Nothing here reads a file, opens a socket or knows a database; `train.TrainingRecorder` is how the
loop reaches the world. `envs/` and `streams.py` do without torch, so that a spec is checked
quickly; so do `learn/optimizer_arrays.py` and what `kernels/precompile.py` needs, so that it
compiles while torch is loaded.
"""
