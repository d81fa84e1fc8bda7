"""Circuit privacy: a client that simulates the server with guessed weights can't tell a right guess from a wrong one."""

from typing import Any

import numpy as np
import pytest
import tenseal.sealapi as seal

from privcirnet.he.bfv import kernel_engine as kernel
from privcirnet.he.bfv import seal as tenseal
from privcirnet.he.bfv.client import KernelClient
from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.bfv.kernels import reply
from privcirnet.he.bfv.noise import MIN_NOISE_BUDGET, ZERO_NOISE_BITS, flood_bits
from privcirnet.he.bfv.parameters import choose, ordered_primes
from privcirnet.he.layers import spectral_layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer, encode_weights
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.ring import sampling
from privcirnet.he.rlwe.kernels import gadget
from privcirnet.he.rlwe.kernels.rns import ring
from tests.he.replies import no_flood, nothing, unswitched
from tests.he.secrets import fresh, twin

LAYER = SpectralLayer(LinearShape(4, 4, 8, 8, 3, 1, 1), 2, 8192, (4, 4), (Piece(1, 1, 128, baby_steps=2),))


PARAMETERS = choose(LAYER.transform_lengths, 46)


T = PARAMETERS.plain_modulus


PRIMES = ordered_primes(8192, PARAMETERS.coefficient_bits)


FLOOD, ZEROS = flood_bits(PARAMETERS), np.zeros(8192, dtype=np.uint64)


class Game:
    """One client, one request, and replies for guessed weights; all of them SEAL's ciphertexts.

    ``sender``, of the server's engine, makes the client's messages.
    """

    def __init__(self, server: Any) -> None:
        self.server, steps = server, LAYER.column_steps
        self.client, self.sender = self.clients()
        self.keys = self.server.load_keys(self.sender.public_keys(steps), steps)
        x = sampling.uniform(LAYER.shape.input_shape, T)
        self.request = [self.sender.encrypt(row) for row in LAYER.encode_input(x, T)]

    def clients(self) -> tuple[tenseal.TensealClient, Any]:
        return (client := tenseal.TensealClient(PARAMETERS)), client

    def output(self, seed: int) -> Any:
        """The layer's result under the weights of a seed, in the server's form."""
        rows = np.random.default_rng(seed).integers(-127, 128, (4, 8, 3, 3))
        weights = encode_weights(LAYER, spectral_layer.weight_spectrum(LAYER.layout, rows, T), self.server)
        (output,) = LAYER.evaluate(weights, self.server.receive_all(self.request, None), self.server, self.keys)
        return output

    def result(self, seed: int) -> Any:
        """The layer's result under the weights of a seed, not masked and not hidden: anyone can compute it."""
        return self.output(seed)

    def masked(self, seed: int) -> Any:
        """A masked result that is not hidden."""
        return self.server.add_plain(self.result(seed), self.server.encode(sampling.uniform((8192,), T)))

    def reply(self, seed: int) -> Any:
        """A masked and hidden result, before the modulus switch."""
        return self.server._hide(self.masked(seed), self.keys)

    def noise_of_difference(self, reply: Any, guess: Any) -> int:
        """Noise budget of reply - guess: high if the noises cancel."""
        context = self.client._context.seal
        difference = seal.Ciphertext(context)
        seal.Evaluator(context).sub(reply, guess, difference)
        return self.client._decryptor.invariant_noise_budget(difference)

    def masks_polynomial(self, ciphertext: Any) -> bytes:
        """c1 of a ciphertext."""
        words = self.client._context.save(ciphertext)[-8 * 3 * 8192 :]
        return words


class KernelGame(Game):
    """The same with the compiled engine."""

    def clients(self) -> tuple[tenseal.TensealClient, Any]:
        sender = KernelClient(PARAMETERS)
        return twin(sender), sender

    def result(self, seed: int) -> Any:
        values = gadget.divided(self.output(seed).residues, self.server._ring)
        self.server._ring.to_coefficients(values)
        return fresh(self.client, values)

    def masked(self, seed: int) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reply, "draw", nothing)
            return self.reply(seed)

    def reply(self, seed: int) -> Any:
        outputs, masks = [self.output(seed)], sampling.uniform((1, 8192), T)
        (found,) = unswitched(lambda: self.server.reply_all(outputs, masks, self.keys))
        return fresh(self.client, found)


@pytest.fixture(scope="module", params=["kernel", "tenseal"])
def game(request: pytest.FixtureRequest) -> Game:
    server = engine_of(request.param).server(PARAMETERS)
    return KernelGame(server) if isinstance(server, kernel.KernelServer) else Game(server)


def test_without_hiding_the_weights_can_be_recognised(game: Game) -> None:
    """The attack works, so that the next test means something: slots masked, everything else bare."""
    reply, right, wrong = game.masked(1), game.result(1), game.result(2)
    assert game.masks_polynomial(reply) == game.masks_polynomial(right)
    assert game.masks_polynomial(reply) != game.masks_polynomial(wrong)
    with pytest.raises(RuntimeError, match="transparent"):
        game.noise_of_difference(reply, right)  # the mask polynomials cancel: only plain slots are left
    assert game.noise_of_difference(reply, wrong) < 60


def test_with_hiding_they_cannot(game: Game) -> None:
    right, wrong = game.result(1), game.result(2)
    budgets: dict[str, list[int]] = {"right": [], "wrong": []}
    for _ in range(8):
        reply = game.reply(1)
        assert game.masks_polynomial(reply) != game.masks_polynomial(right)
        budgets["right"].append(game.noise_of_difference(reply, right))
        budgets["wrong"].append(game.noise_of_difference(reply, wrong))
    assert budgets["right"] == budgets["wrong"]
    assert min(budgets["right"]) >= MIN_NOISE_BUDGET - 1


def test_an_encryption_of_zero_alone_is_not_enough(game: Game, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the flood the noises still cancel under the right guess."""
    unflooded = reply.draw(FLOOD, ring(PRIMES, 8192))._replace(flood=no_flood(FLOOD, PRIMES[:-1], 8192))
    monkeypatch.setattr(reply, "draw", lambda bits, extended: unflooded)
    answer = game.reply(1)
    right, wrong = (game.noise_of_difference(answer, game.result(seed)) for seed in (1, 2))
    assert right > wrong + 20


def test_the_noise_of_an_encryption_of_zero_is_under_its_bound(game: Game, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flooding hides it too, so that nothing tells u. Measured over 8192 coefficients: 2 bits under the bound."""
    bare = reply.draw
    unflooded = no_flood(FLOOD, PRIMES[:-1], 8192)
    monkeypatch.setattr(reply, "draw", lambda bits, extended: bare(bits, extended)._replace(flood=unflooded))
    monkeypatch.setattr(game, "output", lambda seed: game.server.receive_all([game.sender.encrypt(ZEROS)], None)[0])
    left = game.client._decryptor.invariant_noise_budget(game.reply(0))
    noise = sum(PARAMETERS.coefficient_bits[:-1]) - left - 1 - PARAMETERS.plain_bits
    assert ZERO_NOISE_BITS - 4 <= noise <= ZERO_NOISE_BITS - 1


def test_served_replies_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reply goes through the hiding."""
    game = Game(tenseal.TensealServer(PARAMETERS))
    seen: list[int] = []
    original = tenseal.TensealServer._hide
    monkeypatch.setattr(tenseal.TensealServer, "_hide", lambda s, c, k: seen.append(1) or original(s, c, k))
    game.server.reply(game.result(1), game.keys)
    assert seen == [1]


def test_replies_of_the_compiled_engine_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reply has draws of its own."""
    game = KernelGame(kernel.KernelServer(PARAMETERS))
    seen, original = [], reply.draw
    monkeypatch.setattr(reply, "draw", lambda bits, extended: seen.append(bits) or original(bits, extended))
    outputs = [game.output(1) for _ in range(3)]
    game.server.reply_all(outputs, sampling.uniform((3, 8192), T), game.keys)
    assert seen == [FLOOD] * 3
