"""The folder of a CKKS program: a manifest without any weight, the real weights and their scales, a signature.

numpy only; no torch.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from privcirnet.artifact.folder import CKKS, REMEDY, checked_files, read_manifest, replacing_program, seal
from privcirnet.artifact.program import WEIGHTS
from privcirnet.artifact.records import write_tensors
from privcirnet.errors import RuleError
from privcirnet.he.circuits.ckks.bootstrapping import Bootstrapping
from privcirnet.he.planning.ckks.program import BOOTSTRAPPING, CkksProgram
from privcirnet.he.planning.ckks.sums import Convolution, Sum, Sums, Term
from privcirnet.he.program.signature import PrivateKey, PublicKey
from privcirnet.he.schemes.ckks.embedding import Reals
from privcirnet.he.schemes.ckks.parameters import CkksParameters

VERSION = 1
_MAX_NODES, _MAX_TERMS, _MAX_CHANNELS, _MAX_SIZE, _MAX_STEP = 256, 64, 4096, 1024, 1024
_FACTORS, _RMS, _POOLED = "/factors", "/rms", "/pooled"
"""Tensors of numbers that depend on the weights: factors of added squares, sizes of sums, and bound of the means."""


def write_ckks(folder: Path, program: CkksProgram, about: Mapping[str, Any], key: PrivateKey | None = None) -> None:
    """Write a CKKS program's folder.

    Args:
        folder: where; an older program there is replaced when the new one is complete.
        key: signs the program; None for a program without a signature.

    Raises:
        RuleError: the folder holds something that is not a program, or the disk is full.
    """
    network = program.network
    nodes = [{"name": node.name, "terms": [_literal(term) for term in node.terms]} for node in network.nodes]
    facts = {"head": network.head, "nodes": nodes, "description": program.description}
    with replacing_program(folder) as draft:
        write_tensors(draft / WEIGHTS, _tensors(network))
        seal(draft, {"format": CKKS, "version": VERSION, **about, **facts}, [WEIGHTS], program.description, key)


def read_ckks(folder: Path, key: PublicKey | None = None) -> CkksProgram:
    """Read a CKKS program.

    Args:
        folder: that :func:`write_ckks` made.
        key: that must have signed it; None for any program.

    Returns:
        The program with its weights.

    Raises:
        RuleError: missing, damaged, foreign, inconsistent, not signed with the key, or not 128-bit secure.
    """
    data = read_manifest(folder, key, CKKS, (VERSION,))
    files = checked_files(folder, data, (WEIGHTS,))
    try:
        tensors = safetensors.numpy.load(files[WEIGHTS])
        known = data["description"]
        refresh = _refresh(known)
        program = CkksProgram(_network(data, known, tensors), refresh, _integer(known["log_step"], -_MAX_STEP, 64))
        described = program.description
    except SafetensorError as error:
        got = f"{Path(folder) / WEIGHTS}: {error}"
        raise RuleError("a program's tensors must be whole safetensors files", got=got, remedy=REMEDY) from None
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        if isinstance(error, RuleError):
            raise
        raise RuleError("a CKKS program must be complete", got=f"{folder}: {error!r:.200}", remedy=REMEDY) from None
    if described != known:
        rule = "a CKKS program's description must follow from its weights and its parameters"
        raise RuleError(rule, got=f"another in {folder}", remedy=REMEDY)
    return program


def _literal(term: Term) -> dict[str, Any]:
    layer = term.layer
    return {"source": term.source} | ({"layer": layer.name, "stride": layer.stride} if layer else {})


def _tensors(network: Sums) -> dict[str, Reals]:
    terms = [term for node in network.nodes for term in node.terms]
    found = {
        _FACTORS: np.array([term.factor for term in terms]),
        _RMS: np.array([node.rms for node in network.nodes]),
        _POOLED: np.array([network.pooled]),
        f"{network.head}.weights": network.weights,
        f"{network.head}.bias": network.bias,
    }
    for layer in (term.layer for term in terms if term.layer):
        found |= {f"{layer.name}.weights": layer.weights, f"{layer.name}.bias": layer.bias}
    return found


def _refresh(known: Any) -> Bootstrapping:
    """The bootstrapping of a description, from anybody; its parameters are checked as they are made."""
    numbers = {str(name): _integer(value, 0, 1 << 20) for name, value in known["parameters"].items()}
    others = {name: _integer(known["bootstrapping"][name], 1, 1 << 10) for name in BOOTSTRAPPING}
    return Bootstrapping(CkksParameters(**numbers), **others)


def _network(data: Mapping[str, Any], known: Any, tensors: Mapping[str, np.ndarray]) -> Sums:
    """The network of a manifest, from anybody."""
    channels, size, _ = (_integer(value, 1, _MAX_SIZE) for value in known["image"])
    literals, head = list(data["nodes"]), str(data["head"])
    terms = [list(each["terms"]) for each in literals]
    if not (1 <= len(literals) <= _MAX_NODES and all(1 <= len(some) <= _MAX_TERMS for some in terms)):
        rule = f"a CKKS program must have 1 to {_MAX_NODES} sums of 1 to {_MAX_TERMS} terms"
        raise RuleError(rule, got=f"{len(literals)} sums", remedy=REMEDY)
    factors = iter(_numbers(tensors, _FACTORS, 1, sum(map(len, terms))).tolist())
    rms = _numbers(tensors, _RMS, 1, len(literals)).tolist()
    nodes = tuple(
        Sum(str(each["name"]), tuple(_term(term, next(factors), tensors) for term in some), size_of_sum)
        for each, some, size_of_sum in zip(literals, terms, rms, strict=True)
    )
    names = [node.name for node in nodes] + [t.layer.name for node in nodes for t in node.terms if t.layer] + [head]
    if len({*names}) < len(names):
        raise RuleError("a CKKS program's layers must have different names", got=f"{len(names)} names", remedy=REMEDY)
    bounds = float(known["bound"]), float(_numbers(tensors, _POOLED, 1, 1)[0]), float(known["answer"])
    weights, bias = _numbers(tensors, f"{head}.weights", 2), _numbers(tensors, f"{head}.bias", 1)
    network = Sums(channels, size, nodes, weights, bias, head, *bounds)
    network.check()
    return network


def _term(literal: Any, factor: float, tensors: Mapping[str, np.ndarray]) -> Term:
    source = _integer(literal["source"], -1, _MAX_NODES)
    if "layer" not in literal:
        return Term(source, factor=factor)
    name = str(literal["layer"])
    weights, bias = _numbers(tensors, f"{name}.weights", 4), _numbers(tensors, f"{name}.bias", 1)
    return Term(source, Convolution(name, weights, bias, _integer(literal["stride"], 1, 2)), factor)


def _numbers(tensors: Mapping[str, np.ndarray], name: str, dimensions: int, count: int = 0) -> Reals:
    """A tensor of real numbers, of so many axes, and of one length if it is given."""
    found = tensors[name]
    good = found.dtype == np.float64 and found.ndim == dimensions and max(found.shape, default=0) <= _MAX_CHANNELS
    if not good or (count and len(found) != count):
        rule = f"tensor {name!r} must be float64, of {dimensions} axes of at most {_MAX_CHANNELS}"
        raise RuleError(rule, got=f"{found.dtype} {found.shape}", remedy=REMEDY)
    return found


def _integer(value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise RuleError(f"a number must be in [{least}, {most}]", got=f"{value!r:.40}", remedy=REMEDY)
    return value
