"""Circuits as data, the engines that compute them in BFV and CKKS, and the cache of encoded weights."""
