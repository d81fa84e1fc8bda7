"""Printed tables of papers, baselines and published layouts beside ours; they import the package, never the other way."""
