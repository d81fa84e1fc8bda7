"""bench.py with the layouts that papers publish."""
