"""Policies that other libraries saved, read as data: bytes in, tensors under our names out.

Nothing here unpickles, runs or writes anything, and nothing loads torch. A process within
bounds of memory and time calls it (`worker/tasks/read_foreign.py`).
"""
