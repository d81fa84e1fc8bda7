"""Threads, memory limits, private folders: no mathematics."""
