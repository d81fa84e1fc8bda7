"""Compiled loops: gadget products, polynomials from seeds, secret keys, packed bytes."""
