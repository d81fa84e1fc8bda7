"""Real maps in slots: layouts and linear maps."""
