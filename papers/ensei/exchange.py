"""ENSEI's protocol for one convolution, both parties in one process, with any p_N, p_A and p_E.

The moduli are not checked: that is what this is for. With those that :func:`ensei.moduli.choose` and
:func:`ensei.moduli.equal` find every output is right; with those of the paper's Table 2 it is not. Programs have
equal moduli only, and never come here.

Source: Bian et al., ENSEI (CVPR 2020), Figure 2 and sections 4.1 and 5.2. The server draws its mask and adds it, and
keeps the negative, where the paper subtracts: the same distribution.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.bench.layers import Timing
from papers.ensei import moduli as ensei
from papers.ensei.moduli import Moduli
from privcirnet.he.bfv.interface import Ciphertext, ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.layers.integer import convolve, expand_rows
from privcirnet.he.layers.spectral_layer import SpectralLayer, encode_weights
from privcirnet.he.ring import modular, sampling
from privcirnet.he.ring.modular import Integers, Residues


class Exchange(NamedTuple):
    """What one exchange gave.

    Attributes:
        output: integers, shape (K, H', W').
        timing: processor seconds of both parties.
    """

    output: Integers
    bytes_up: int
    bytes_down: int
    timing: Timing


@dataclass(eq=False)
class Convolution:
    """Both parties of one layer, ready for exchanges.

    Attributes:
        layer: laid out without rotations, or with them.
        rows: integer weights, shape (K/b, C/groups, R, R).
        moduli: the three primes.
        mask_below: masks are uniform under it.
        server: with the same parameters.
    """

    layer: SpectralLayer
    rows: Integers
    moduli: Moduli
    mask_below: int
    client: ClientEngine
    server: ServerEngine

    def __post_init__(self) -> None:
        steps = self.layer.column_steps
        self._keys: EvaluationKeys = self.server.load_keys(self.client.public_keys(steps), steps)
        spectrum = ensei.weight_spectrum(self.layer, self.rows, self.moduli)
        self._weights = encode_weights(self.layer, spectrum, self.server)

    def request(self, x: Integers) -> tuple[list[bytes], Residues]:
        """Return the client's messages, and the slots of the server's own share.

        Args:
            x: integers, shape (C, H, W); they are shared mod p_A.

        Returns:
            (messages, slots of shape (ciphertexts_in, n)).
        """
        p_a = self.moduli.sharing
        theirs = sampling.uniform(x.shape, p_a)
        ours = modular.subtract(modular.residues(x, p_a), theirs, p_a)
        messages = self.client.encrypt_all(ensei.request_slots(self.layer, ours, self.moduli))
        return messages, ensei.request_slots(self.layer, theirs, self.moduli)

    def evaluate(self, messages: Sequence[bytes], own: Residues) -> Sequence[Ciphertext]:
        """Return the results under encryption, before they are masked.

        Args:
            own: slots of the server's share, shape (ciphertexts_in, n).
        """
        inputs = self.server.receive_all(messages, own)
        return self.layer.evaluate(self._weights, inputs, self.server, self._keys)

    def run(self, x: Integers, bias: Integers) -> Exchange:
        """Return what the layer gives under encryption.

        Args:
            x: integers, shape (C, H, W).
            bias: integers, shape (K,).
        """
        layer, p_n = self.layer, self.moduli.ntt
        start = time.process_time()
        messages, own = self.request(x)
        sent = time.process_time()
        mask = sampling.uniform((layer.ciphertexts_out, layer.ring_degree), self.mask_below)
        replies = self.server.reply_all(self.evaluate(messages, own), mask, self._keys)
        kept = ensei.finish_server(layer, mask, bias, self.moduli)
        answered = time.process_time()
        read = ensei.finish_client(layer, self.client.decrypt_all(replies), self.moduli)
        timing = Timing(sent - start, answered - sent, time.process_time() - answered)
        output = modular.centered(modular.add(read, kept, p_n), p_n)
        return Exchange(output, sum(map(len, messages)), sum(map(len, replies)), timing)


def wrong_share(found: Integers, x: Integers, rows: Integers, layer: SpectralLayer) -> float:
    """Return the share of a layer's outputs that are not the integer convolution's.

    Args:
        found: outputs, shape (K, H', W').
        x: inputs, shape (C, H, W).
        rows: integer weights, shape (K/b, C/groups, R, R).
    """
    return float((found != convolve(x, expand_rows(rows, layer.block_size), layer.shape)).mean())
