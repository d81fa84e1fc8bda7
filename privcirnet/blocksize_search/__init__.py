"""Measuring sensitivity and latency, and choosing block sizes."""
