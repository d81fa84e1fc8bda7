"""Tests of the pipeline of reproduce.py."""
