"""Layers, networks and encodings side by side: what bench.py runs and reports."""
