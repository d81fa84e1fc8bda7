"""The kinds of encrypted linear layers, behind one interface.

What both parties know of a layer is public data with the same members whatever its encoding: ``shape``, ``block_size``,
``ring_degree``, ``encoding``; the counts ``rotations``, ``pmults``, ``ciphertexts_in``, ``ciphertexts_out``; what it
asks of the parameters, ``column_steps``, ``transform_lengths``, ``noise_bits``; and the steps ``encode_input``,
``spectrum``, ``encode_spectrum``, ``evaluate``, ``encode_mask``, ``decode_output``.
"""

from privcirnet.he.encodings.coefficient_layer import CoefficientLayer
from privcirnet.he.encodings.spectral_layer import SpectralLayer

Layer = SpectralLayer | CoefficientLayer
"""Spectral (CirEncode and its special cases) or coefficient encoding (Cheetah, Falcon 2023)."""
