"""Crash points: stop at every step that changes the disk or the catalog, start again, check what was promised."""
