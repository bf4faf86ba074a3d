"""The queue: which waiting runs start next, and when."""
