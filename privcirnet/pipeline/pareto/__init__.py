"""Accuracy over predicted latency, method beside method, as PrivCirNet plots it: what benchmarks/pareto.py does."""
