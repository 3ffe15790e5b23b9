"""Storms: real processes are killed, stopped, cut off and starved while builds run; then everything is checked."""
