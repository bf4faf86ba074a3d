"""Tests. Those that compute in this process do so on one core each: others work beside it, and
threads that wait for each other where there is no core for them take three times as long."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
