"""Layouts and formulas as papers publish them."""
