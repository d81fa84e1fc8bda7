"""BFV: parameters (n, q, t), batching, noise, layers' circuits, and the engines that compute on its ciphertexts."""
