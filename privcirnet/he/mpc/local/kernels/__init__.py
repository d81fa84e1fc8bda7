"""Compiled loops over shares."""
