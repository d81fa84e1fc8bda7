"""State: parametrizations and modules, and how a network's graph is read; :mod:`privcirnet.passes` changes networks."""
