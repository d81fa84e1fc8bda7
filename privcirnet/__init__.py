"""privcirnet: networks with block-circulant weights, trained, searched, exported, and run on encrypted images.

A short tour of the public names, from a trained network to encrypted inference::

    import privcirnet as pc

    pc.polynomial_(model, images)                       # any network: activations and pools become polynomials
    pc.candidates(model, 4)                             # which layers can have block size 4, and why others cannot
    fisher = pc.diagonal_fisher(model, loader, names)   # importance of every weight
    pc.sensitivity(weight, fisher["conv1"], b=4)        # predicted rise of the loss if one layer becomes circulant
    plan = pc.solve(sensitivities, latencies, budget)   # block sizes with the least loss within a latency budget
    pc.circulant_(model, plan.block_sizes, fisher)      # in place; fine-tune it afterwards
    pc.quantize(pc.fuse(model), batches)                # batch norms folded, 8 bits; train it further

    program, spectra = pc.read_program(folder)          # the result of export.py
    pc.interpret(program, image)                        # in clear, on integers
    pc.evaluate(program, spectra, images)               # encrypted, with both parties in this process

:class:`Server` and :class:`Client` are the two parties on their own. A user's mistake raises a :class:`RuleError`.

Public names are loaded on first use, so that a client, which needs only ``privcirnet.he``, imports no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privcirnet.artifact import read_program, write_program
    from privcirnet.blocksizes.fisher import diagonal_fisher
    from privcirnet.blocksizes.solve import solve
    from privcirnet.errors import RuleError
    from privcirnet.functional.circulant import expand, project
    from privcirnet.functional.sensitivity import sensitivity
    from privcirnet.he.measure.calibrate import calibrate
    from privcirnet.he.program.interpreter import interpret
    from privcirnet.he.protocol.client import Client
    from privcirnet.he.protocol.server import Server
    from privcirnet.nn.activations import Aespa2d, Square
    from privcirnet.nn.candidates import candidates
    from privcirnet.nn.circulant import BlockCirculantConv2d, BlockCirculantLinear
    from privcirnet.nn.convert import circulant_, dense_state_dict
    from privcirnet.nn.fuse import fuse
    from privcirnet.nn.quantize import quantize
    from privcirnet.pipeline.evaluation import evaluate
    from privcirnet.surgery import polynomial_

__version__ = "0.1.0"

_HOME = {
    "Aespa2d": "nn.activations",
    "BlockCirculantConv2d": "nn.circulant",
    "BlockCirculantLinear": "nn.circulant",
    "Client": "he.protocol.client",
    "RuleError": "errors",
    "Server": "he.protocol.server",
    "Square": "nn.activations",
    "calibrate": "he.measure.calibrate",
    "candidates": "nn.candidates",
    "circulant_": "nn.convert",
    "dense_state_dict": "nn.convert",
    "diagonal_fisher": "blocksizes.fisher",
    "evaluate": "pipeline.evaluation",
    "expand": "functional.circulant",
    "fuse": "nn.fuse",
    "interpret": "he.program.interpreter",
    "polynomial_": "surgery",
    "project": "functional.circulant",
    "quantize": "nn.quantize",
    "read_program": "artifact",
    "sensitivity": "functional.sensitivity",
    "solve": "blocksizes.solve",
    "write_program": "artifact",
}

__all__ = [
    "Aespa2d",
    "BlockCirculantConv2d",
    "BlockCirculantLinear",
    "Client",
    "RuleError",
    "Server",
    "Square",
    "calibrate",
    "candidates",
    "circulant_",
    "dense_state_dict",
    "diagonal_fisher",
    "evaluate",
    "expand",
    "fuse",
    "interpret",
    "polynomial_",
    "project",
    "quantize",
    "read_program",
    "sensitivity",
    "solve",
    "write_program",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
