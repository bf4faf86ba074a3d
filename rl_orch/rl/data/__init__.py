"""Data: batches, returns and schedules."""
