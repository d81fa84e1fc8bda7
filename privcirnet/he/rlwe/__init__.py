"""Keys, switch keys, the chain of primes and bytes on the wire: the core of both schemes, without t or a scale."""
