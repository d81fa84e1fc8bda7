"""A page on loopback that shows encrypted inference as it happens: an image, its ciphertexts, its answer.

It is a client like any other, with a browser for a face. :mod:`page.inference` runs the protocol and tells what goes
by, :mod:`page.server` hands that on and keeps other websites out.
"""
