"""CKKS: where a real network is bootstrapped, its circuit and what it costs."""
