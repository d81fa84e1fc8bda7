"""Circuits of networks that take one request and one answer, in BFV or CKKS: plans, parameters, what they cost."""
