"""Accuracy over predicted latency, method beside method, as PrivCirNet plots it."""
