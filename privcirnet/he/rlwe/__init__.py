"""Keys, switch keys, the chain of primes and bytes on the wire: what both schemes stand on, without t or a scale."""
