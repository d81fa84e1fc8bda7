"""Checked parameters (n, q, t): how they are chosen, how secure they are, what noise and which bytes they allow."""
