"""Threads, memory limits, folders and the disk: no mathematics."""
