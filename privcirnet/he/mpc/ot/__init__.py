"""Oblivious transfers: the chooser gets one of two keys, the other party does not learn which."""
