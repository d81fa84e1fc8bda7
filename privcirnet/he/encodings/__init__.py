"""How a layer's values become slots: one module per family of encodings."""
