"""State: parametrizations and modules, and the verbs that convert whole networks."""
