"""Linear maps, polynomials and bootstrapping: run encrypted, in clear, counted or simulated. See docs/ckks.md."""
