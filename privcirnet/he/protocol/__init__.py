"""Two parties that exchange nothing but bytes."""
