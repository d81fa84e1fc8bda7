"""privcirnet: networks with block-circulant weights, trained, searched, exported, and run on encrypted images.

A network of timm, of torchvision or of a user's own, trained, to encrypted answers::

    import privcirnet as pc

    program = pc.compile(model, images)               # batch norms folded, 8 bits; ReLU and others run exactly
    logits = program(images)                          # encrypted, with both parties in this process
    program.save(folder)                              # pc.load(folder) reads it

Circulant layers cost less, and are trained for a while::

    print(pc.check(model, images))                    # what verbs refuse, what an encrypted image costs
    plan = pc.search(model, data, budget=pc.uniform(4))  # block sizes with the least loss within a latency budget
    pc.circulant_(model, plan.block_sizes, images=images)  # in place, fitted to what the dense layers compute
    pc.fit(model, data, epochs=2)                     # or a training loop of your own
    program = pc.compile(model, images, profile=plan.profile)
    pc.save(model, folder)                            # pc.network(folder) reads it, and so do the scripts

Step by step, to train the network that :func:`compile` would make by itself::

    quantized = pc.quantize(pc.fuse(model), images)   # pc.quantize(model, images) is the same
    pc.fit(quantized, data, epochs=2)
    program = pc.compile(quantized, images)

:func:`polynomial_` puts polynomials in place of activations, in place: they are faster and need training.
:class:`Server` and :class:`Client` are single parties, :class:`BackgroundPreparation` prepares inferences. The
steps of :func:`search` are :func:`candidates`, :func:`diagonal_fisher`, :func:`sensitivity`, :func:`solve`. A user's
mistake raises a :class:`RuleError`. ``images`` is a tensor; ``data`` a pair with labels or a loader.

Public names are loaded on first use, so that a client, which needs only ``privcirnet.he``, imports no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privcirnet.api.compile import compile, load
    from privcirnet.api.network import fit, network, save
    from privcirnet.api.search import check, search
    from privcirnet.blocksize_search.curvature import diagonal_fisher
    from privcirnet.blocksize_search.solve import solve
    from privcirnet.config import CompileConfig, FitConfig, SearchConfig
    from privcirnet.config.search import fraction, uniform
    from privcirnet.errors import RuleError
    from privcirnet.he.protocol.parties.background_preparation import BackgroundPreparation
    from privcirnet.he.protocol.parties.client import Client
    from privcirnet.he.protocol.parties.server import Server
    from privcirnet.nn.activations import Aespa2d, Square
    from privcirnet.nn.circulant import BlockCirculantConv2d, BlockCirculantLinear
    from privcirnet.nn.functional.circulant import sensitivity
    from privcirnet.passes.convert import candidates, circulant_, dense_state_dict
    from privcirnet.passes.fuse import fuse
    from privcirnet.passes.quantize import quantize
    from privcirnet.passes.surgery import polynomial_

__version__ = "0.1.0"

_HOME = {
    "Aespa2d": "nn.activations",
    "BlockCirculantConv2d": "nn.circulant",
    "BlockCirculantLinear": "nn.circulant",
    "Client": "he.protocol.parties.client",
    "CompileConfig": "config",
    "FitConfig": "config",
    "BackgroundPreparation": "he.protocol.parties.background_preparation",
    "RuleError": "errors",
    "SearchConfig": "config",
    "Server": "he.protocol.parties.server",
    "Square": "nn.activations",
    "candidates": "passes.convert",
    "check": "api.search",
    "circulant_": "passes.convert",
    "compile": "api.compile",
    "dense_state_dict": "passes.convert",
    "diagonal_fisher": "blocksize_search.curvature",
    "fit": "api.network",
    "fraction": "config.search",
    "fuse": "passes.fuse",
    "load": "api.compile",
    "network": "api.network",
    "polynomial_": "passes.surgery",
    "quantize": "passes.quantize",
    "save": "api.network",
    "search": "api.search",
    "sensitivity": "nn.functional.circulant",
    "solve": "blocksize_search.solve",
    "uniform": "config.search",
}

__all__ = [
    "Aespa2d",
    "BackgroundPreparation",
    "BlockCirculantConv2d",
    "BlockCirculantLinear",
    "Client",
    "CompileConfig",
    "FitConfig",
    "RuleError",
    "SearchConfig",
    "Server",
    "Square",
    "candidates",
    "check",
    "circulant_",
    "compile",
    "dense_state_dict",
    "diagonal_fisher",
    "fit",
    "fraction",
    "fuse",
    "load",
    "network",
    "polynomial_",
    "quantize",
    "save",
    "search",
    "sensitivity",
    "solve",
    "uniform",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
