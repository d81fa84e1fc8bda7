"""TCP between the parties."""
