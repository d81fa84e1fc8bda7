"""ENSEI's moduli and requests."""
