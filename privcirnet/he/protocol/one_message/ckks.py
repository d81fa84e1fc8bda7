"""CKKS inference between two parties: the public description of a program, and both ends of a request.

Keys are one message: the public key, then every switch key in ascending order of names; each length follows from the
parameters.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.ckks import hoisting
from privcirnet.he.ckks.circuit import SlotInterface
from privcirnet.he.ckks.client import CkksClient
from privcirnet.he.ckks.context import Context, is_name
from privcirnet.he.ckks.embedding import Reals, Slots
from privcirnet.he.ckks.evaluator import Cleartext, EncryptedEvaluator, unheard
from privcirnet.he.ckks.parameters import CkksParameters
from privcirnet.he.ckks.program import BOOTSTRAPPING, CkksProgram, Rehearsed, memory_bytes
from privcirnet.he.ckks.server import CkksServer, Keys, flood_bits, flood_reply
from privcirnet.he.ckks.slotwise import Layout
from privcirnet.he.layers.integer import Values
from privcirnet.he.program.program import ImpossibleResultError, PixelRange
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.one_message.description import OneMessageDescription
from privcirnet.he.protocol.one_message.reading import CKKS, MAX_CIPHERTEXTS, Message, Reader, check_counts
from privcirnet.he.protocol.wire import MessageSizes
from privcirnet.he.ring.sampling import FLOODING_BITS
from privcirnet.he.rlwe.key_switching import Ciphertext
from privcirnet.he.rlwe.parameters import MAX_LOG_Q, is_low
from privcirnet.he.rlwe.wire_bytes import Message as Bytes
from privcirnet.he.rlwe.wire_bytes import check_length
from privcirnet.he.system.process import machine_bytes

_VERSION = 1
ENGINES = "kernel", "cleartext"
MAX_KEY_BYTES, MAX_REQUEST_BYTES, MAX_LEVELS = 1 << 33, 1 << 30, 64
"""Longest keys and requests, and most levels, that are accepted."""
_SLOT, _WIDEST = 16, 2.0
"""Bytes of a slot of the clear-text engine; results beyond twice their bound are none."""
_read = Reader("a CKKS program's description")


@dataclass(frozen=True)
class CkksDescription(OneMessageDescription):
    """The public description of a program: no weight.

    Attributes:
        data: all of it as plain data.
        ends: slots of image and logits.
        shape: shape of an image, (C, s, s).
        level: level of a request.
        names: names of the keys, ascending, with the highest level that each is used at.
        log_step: real pixel = integer x 2^log_step.
    """

    data: Mapping[str, Any]
    parameters: CkksParameters
    ends: SlotInterface
    shape: tuple[int, int, int]
    level: int
    names: Mapping[int, int]
    log_step: int
    mode, scheme = "ckks", "CKKS"
    warms_up = False
    """False: its keys are gigabytes."""

    @property
    def pixels(self) -> PixelRange:
        """The range of pixels; the bound of examples is twice the largest value that they had."""
        return PixelRange(
            self.shape, 0, int(self.ends.bound / 2 * 2.0**-self.log_step), whole=False, log_step=self.log_step
        )

    @property
    def request_bits(self) -> tuple[int, ...]:
        return tuple(prime.bit_length() for prime in self.parameters.data_primes[: self.level + 1])

    @property
    def parameters_in_words(self) -> str:
        return f"n = {self.parameters.ring_degree}, log q = {self.parameters.log_q}"

    @property
    def classes(self) -> int:
        return self.ends.classes

    @cached_property
    def context(self) -> Context:
        """The context of the parameters."""
        return Context(self.parameters)

    @property
    def inputs(self) -> int:
        """The number of ciphertexts of a request."""
        return self.ends.image.parts

    @property
    def outputs(self) -> int:
        """The number of ciphertexts of an answer."""
        return 1

    @property
    def sizes(self) -> MessageSizes:
        """The most bytes of its messages, whatever the engine."""
        clear, fresh = _SLOT * self.parameters.slots, self.context.modulus
        chains = [self.context.key_chain(name, level) for name, level in self.names.items()]
        keys = [fresh(0).seeded_size(), *(chain.parameters.key_bytes(count) for chain, count in chains)]
        return MessageSizes(
            keys=wire.framed_bytes(keys),
            request=wire.framed_bytes([max(fresh(self.level).seeded_size(), clear)] * self.inputs),
            reply=wire.framed_bytes([max(fresh(0).compact_size(2), clear)]),
        )

    def real(self, image: Values) -> Reals:
        """Return an image as the network takes it; ``image``: integers as the data set has them, (C, s, s)."""
        if np.shape(image) != self.shape:
            rule, remedy = f"images must have the program's shape {self.shape}", "use the data set of the program"
            raise RuleError(rule, got=np.shape(image), remedy=remedy)
        return np.asarray(image, dtype=np.float64) * 2.0**self.log_step


def to_dict(program: CkksProgram) -> dict[str, Any]:
    """Return the public description of a program, as plain data for JSON."""
    return {"format": CKKS, "version": _VERSION, **program.description}


def parameters_from(data: Any) -> CkksParameters:
    """Return the parameters of an untrusted description."""
    numbers = {str(name): _read.integer(value, 0, 1 << 17) for name, value in data.items()}
    if numbers["ring_degree"] not in MAX_LOG_Q or numbers["levels"] > MAX_LEVELS:  # before primes are looked for
        raise _read.refused(f"must have a secure ring and at most {MAX_LEVELS} levels", f"{numbers}"[:60])
    return CkksParameters(**numbers)


def bootstrapping_from(data: Any) -> dict[str, int]:
    """Return the numbers of an untrusted bootstrapping, besides its parameters.

    Raises:
        RuleError: they are none.
    """
    return {name: _read.integer(data[name], 1, 1 << 10) for name in BOOTSTRAPPING}


def from_dict(data: Any) -> CkksDescription:
    """Return the description of untrusted data."""
    with _read.whole(data, CKKS, _VERSION):
        parameters = parameters_from(data["parameters"])
        channels, *sizes = _read.integers(data["image"], 3, 1, parameters.slots)
        if len(sizes) != 2 or sizes[0] != sizes[1]:
            raise _read.refused("must have a square image", repr(data["image"])[:40])
        last = _read.integers(data["last"], 2, 1, parameters.slots)
        if len(last) != 2 or last[0] * last[1] ** 2 > parameters.slots:
            raise _read.refused("must have logits in one ciphertext", repr(data["last"])[:40])
        image = Layout(max(2, 1 << (channels - 1).bit_length()), sizes[0], parameters.slots)
        description = CkksDescription(
            data,
            parameters,
            SlotInterface(
                image,
                Layout(last[0], last[1], parameters.slots),
                _read.positive(data["bound"]),
                _read.positive(data["answer"]),
                _read.integer(data["classes"], 1, last[0]),
            ),
            (channels, sizes[0], sizes[0]),
            _read.integer(data["level"], 0, parameters.levels),
            _names(data["keys"], parameters),
            _read.integer(data["log_step"], -1024, 64),
        )
    keys, request = description.sizes.keys, description.sizes.request
    if keys > MAX_KEY_BYTES or request > MAX_REQUEST_BYTES:
        rule = f"must have keys and requests of at most {MAX_KEY_BYTES} and {MAX_REQUEST_BYTES} bytes"
        raise _read.refused(rule, f"{keys} and {request}")
    return description


def _names(value: Any, parameters: CkksParameters) -> dict[int, int]:
    """Return the names of keys with their levels, each once."""
    pairs = [_read.integers(pair, 2, 0, 1 << 21) for pair in _read.few(value, MAX_CIPHERTEXTS)]
    levels = {pair[0]: pair[1] for pair in pairs}
    low = parameters.low.levels if parameters.low else -1
    if list(levels) != sorted(levels) or len(levels) < len(pairs):
        raise _read.refused("must have its keys in order", f"{len(pairs)} keys")
    if strange := [name for name in levels if not is_name(name, parameters)]:
        raise _read.refused("must have keys of Galois elements", f"{strange}"[:60])
    for name, level in levels.items():
        _read.integer(level, 0, low if is_low(name) else parameters.levels)
    return levels


class CkksInferenceClient:
    """The party with the image and the secret key.

    Args:
        engine: one of :data:`ENGINES`.
    """

    def __init__(self, description: CkksDescription, engine: str = "kernel") -> None:
        self._known = description
        self._client = CkksClient(description.parameters) if engine == "kernel" else None

    def key_parts(self) -> Iterator[bytes]:
        """Yield the public key and each switch key, made one by one."""
        if self._client:
            yield self._client.public_key()
            yield from (self._client.evaluation_keys({name: level}) for name, level in self._known.names.items())

    def keys(self) -> list[bytes]:
        """Return all of them."""
        return list(self.key_parts())

    def request(self, image: Values) -> Message:
        """Return an encrypted image.

        Raises:
            RuleError: the image has another shape.
        """
        slots = self._known.ends.encode(self._known.real(image))
        return [[self._client.encrypt(part, self._known.level) if self._client else part.tobytes() for part in slots]]

    def results(self, answer: Message) -> Reals:
        """Return the logits, (classes,).

        Raises:
            RuleError: it is no such answer.
            ImpossibleResultError: a logit is wider than right ones are.
        """
        check_counts(answer, 1, 1, "an answer")
        logits = self._known.ends.logits(self._decrypted(answer[0][0]))
        if not (np.abs(logits) <= _WIDEST * self._known.ends.answer).all():
            rule, remedy = "a result must be as wide as right ones are", "do not use it, nor ask for it again"
            raise ImpossibleResultError(rule, got="a wider one", remedy=remedy, values=logits)
        return logits

    def close(self) -> None:
        """Forget the secret key."""
        if self._client:
            self._client.close()

    def _decrypted(self, message: bytes) -> Slots:
        return self._client.decrypt(message) if self._client else _clear(message, self._known)


class CkksInferenceServer:
    """The party with the weights.

    Args:
        engine: one of :data:`ENGINES`.
        weights_gb: memory for encoded weights in GB; others are encoded for each image.
        hides: whether answers are hidden as far as that goes; a harness that measures their error has both parties.
        encoding: function called with the layer of each map that is encoded.
        rehearsed: the circuit that the simulator has run; None: it runs it now.
        keys_gb: most memory of a client's keys in GB.
    """

    def __init__(  # noqa: PLR0913
        self,
        program: CkksProgram,
        engine: str = "kernel",
        weights_gb: float = 4.0,
        *,
        hides: bool = True,
        encoding: Callable[[str], object] = unheard,
        rehearsed: Rehearsed | None = None,
        keys_gb: float = inf,
    ) -> None:
        self.description = from_dict(to_dict(program))
        self.rehearsed, self._hides = rehearsed or program.rehearsed(weights_gb), hides
        self.server = CkksServer(self.description.parameters) if engine == "kernel" else None
        if self.server:
            circuit = self.rehearsed
            circuit.check(keys_gb, machine_bytes(), memory_bytes(circuit.circuit, circuit.counting))
        for linear_map in self.rehearsed.counting.maps:
            if self.server and (linear := linear_map.linear()):
                hoisting.encode(self.server.at(linear_map.level).context, linear, linear_map.level)
            encoding(linear_map.layer)

    @property
    def counts(self) -> Mapping[str, int]:
        """The operations of an image."""
        return self.rehearsed.counting.total

    @property
    def flooding(self) -> int:
        """log2 of the ratio of flooding noise to the bound on the error that it hides."""
        parameters = self.description.parameters
        return flood_bits(parameters) - self.rehearsed.reply.noise_bits(parameters.slots)

    def in_words(self) -> str:
        """Describe the computation, its cost, and the leakage of its answers."""
        description, rehearsed = self.description, self.rehearsed
        return (
            f"CKKS, {rehearsed.bootstrappings} bootstrappings, one request for an image of "
            f"{' x '.join(map(str, description.shape))}, n = {description.parameters.ring_degree}, "
            f"log q = {description.parameters.log_q}; its session takes {rehearsed.key_bytes / 1e6:.0f} MB; "
            f"answers have noise of 2^{self.flooding} times the circuit's error, not 2^{FLOODING_BITS}, and tell a "
            "client more of the weights than logits do; clients must show results to nobody (SECURITY.md)"
        )

    def load_keys(self, parts: Iterable[Bytes]) -> tuple[Ciphertext | None, Keys]:
        """Check and load a client's keys.

        Args:
            parts: keys from :meth:`CkksInferenceClient.keys`; each is released as it is loaded.
        """
        if self.server is None:
            return None, {}
        due, loaded, parts = [*self.description.names.items()], dict[int, Any](), iter(parts)
        public = self.server.receive(next(parts, b""), 0)
        for number, part in enumerate(parts):
            name = dict(due[number : number + 1])
            loaded |= self.server.load_keys(part, name)
        if len(loaded) != len(due):
            rule, remedy = "keys must be for every step of the circuit", "use the same version on both sides"
            raise RuleError(rule, got=f"{len(loaded)} of {len(due)}", remedy=remedy)
        return public, loaded

    def answer(
        self,
        request: Message,
        keys: tuple[Ciphertext | None, Keys],
        begins: Callable[[str], object] = unheard,
    ) -> Message:
        """Return the encrypted logits of an encrypted image.

        Args:
            keys: keys from :meth:`load_keys`.
            begins: function called with the name of each layer that begins.

        Raises:
            RuleError: it is not such a request.
        """
        check_counts(request, 1, self.description.inputs, "a request")
        circuit, (public, switch_keys) = self.rehearsed.circuit, keys
        begins("image")
        if self.server is None:
            received = [_clear(part, self.description) for part in request[0]]
            with np.errstate(over="ignore", invalid="ignore"):  # of an image beyond the bounds
                return [[circuit(Cleartext(begins, strict=False), received).tobytes()]]
        server = self.server
        values = [server.receive(part, self.description.level) for part in request[0]]
        reply = server.lower(circuit(EncryptedEvaluator(server, switch_keys, begins), values), 0)
        if self._hides and public:
            reply = flood_reply(server.context, reply, public)
        return [[server.reply(reply)]]


def _clear(message: bytes, description: CkksDescription) -> Slots:
    check_length(message, _SLOT * description.parameters.slots)
    return np.frombuffer(message, dtype=np.complex128)
