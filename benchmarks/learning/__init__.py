"""How well the algorithms learn, beside Stable-Baselines3 with the same budget and hyperparameters.

`python -m benchmarks.learning --peer-python PATH` runs it. `tasks.py` says what is learned and what
counts as learned, `results.py` what the runs add up to, `differences.py` how far one side gets
above another, `page.py` and `picture.py` show them, `ours.py` is one run of ours; the peer's is in
`benchmarks/peers/sb3_learning.py`.
"""
