"""Two-party computation on shares."""
