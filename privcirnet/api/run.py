"""Encrypted inference with both parties in this process."""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from privcirnet.errors import RuleError, listed
from privcirnet.he.circuits.weight_cache import WeightCache
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.runs.answers import Answer, answers
from privcirnet.runs.compiled import CompiledProgram
from privcirnet.runs.evaluation import evaluate
from privcirnet.runs.memory import WEIGHTS_GB, check_memory
from privcirnet.runs.rehearsal import in_words


def run(
    program: CompiledProgram,
    images: Tensor,
    *,
    check: bool = False,
    engine: str = "kernel",
    weights_gb: float = WEIGHTS_GB,
) -> Tensor:
    """Encrypt images, compute on them, decrypt: the client and the server exchange bytes within this process.

    Args:
        program: of :func:`privcirnet.compile` or :func:`privcirnet.load`.
        images: real, (N, C, H, W), in the program's range; a NumPy array will do.
        check: whether every value of every image is compared with the integer network's.
        engine: of both parties: "kernel", "tenseal" (slower), or "cleartext" for a rehearsal that hides nothing.
        weights_gb: of encoded weights that the server keeps, in 10^9 bytes; others are encoded again for every image.

    Returns:
        logits, float32 (N, classes), on the CPU.

    Warns:
        UserWarning: of the images that it was compiled with, more than a tenth had another class than the quantized
            network gave them.

    Raises:
        RuleError: no program, no images, or of another size or range, too little memory (:func:`privcirnet.check`
            predicts it), or a value that is not the integer network's.
        WrongResult: a result is wider than right ones are, and not to be used.
    """
    if not isinstance(program, CompiledProgram):
        raise RuleError(
            "a program must be a compiled one", got=type(program).__name__, remedy="give compile(network, ...)"
        )
    integers = program.integers(images.detach().cpu().double() if isinstance(images, Tensor) else images)
    check_memory(program.integer, weights_gb, engine)
    if program.doubtful:
        warnings.warn(f"{in_words(program.rehearsal)}; compile with guard_bits=, or train longer", stacklevel=2)
    cache = WeightCache.of(weights_gb)
    if check:
        found = evaluate(program.integer, program.spectra, integers, engine, cache=cache)
        if wrong := {i: nodes[0] for i, nodes in enumerate(found.wrong) if nodes}:
            raise _wrong(program, wrong)
        _check_refused(found.inference.answers)
        values = found.encrypted
    else:
        server = Server(program.integer, engine, program.spectra, cache=cache)
        client = Client(server.greeting(), engine)
        session = server.session(client.keys())
        found = [*answers(client, session, integers)]
        _check_refused(found)
        values = np.stack([answer.logits for answer in found])
    return torch.from_numpy(program.logits(values)).float()


def _check_refused(found: Sequence[Answer]) -> None:
    """Raise if a result is wider than right ones are."""
    if refused := next((answer.refused for answer in found if answer.refused), None):
        raise refused


def _wrong(program: CompiledProgram, first: Mapping[int, str]) -> RuleError:
    """The first wrong node by image."""
    again = "run it again: masks wrap with the probability that failure_bits allows"
    beyond = "an image is beyond the measured bounds if it fails again: compile with images like it, or train longer"
    remedy = f"{again}; {beyond if program.bounds == 'measured' else 'report it if it fails again'}"
    got = listed([f"another from {name} on for image {i}" for i, name in first.items()])
    return RuleError("every value must be the integer network's", got=got, remedy=remedy)
