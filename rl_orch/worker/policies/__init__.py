"""Policies in a worker: loaded from files, recorded, filmed."""
