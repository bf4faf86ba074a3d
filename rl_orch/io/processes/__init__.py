"""Processes: who one is, what it starts with, how it is contained and swept."""
