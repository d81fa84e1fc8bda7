"""Arithmetic mod t on shares, in clear and compiled: what is left to do once an image is there, if all was prepared."""
