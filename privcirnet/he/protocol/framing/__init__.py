"""Frames, the greeting, and the meter of what was sent."""
