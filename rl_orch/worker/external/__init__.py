"""Runs of external programs: started, listened to, their checkpoints kept."""
