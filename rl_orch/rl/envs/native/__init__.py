"""Gymnasium's classic control, all copies stepped by one kernel instead of an object each."""
