"""One training loop for dense, circulant and quantized networks."""
