"""The folder of a leveled program: a manifest without any weight, the integer weights, a signature.

Biases are integers of any size, stored as the bytes of two's complement, little-endian. numpy only; no torch.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from privcirnet.artifact.folder import LEVELED, REMEDY, checked_files, read_manifest, replacing_program, seal
from privcirnet.artifact.program import WEIGHTS, checked_tensor
from privcirnet.artifact.records import write_tensors
from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.noninteractive.chain import Chain, ChainLayer
from privcirnet.he.program.signature import PrivateKey, PublicKey
from privcirnet.he.protocol.noninteractive import description
from privcirnet.he.protocol.noninteractive.program import LeveledProgram

VERSION = 1
_MAX_LAYERS, _MAX_BIAS_BYTES = 16, 64


def write_leveled(
    folder: Path, program: LeveledProgram, about: Mapping[str, Any], key: PrivateKey | None = None
) -> None:
    """Write a leveled program's folder.

    Args:
        folder: where; an older program there is replaced when the new one is complete.
        key: signs the program; None for a program without a signature.

    Raises:
        RuleError: the folder holds something that is not a program, or the disk is full.
    """
    described, network = description.to_dict(program.description), program.network
    layers = [{"name": o.name, "shape": asdict(o.shape), "block_size": o.block_size} for o in network.layers]
    facts = {"planner": program.planner, "layers": layers, "description": described}
    with replacing_program(folder) as draft:
        write_tensors(draft / WEIGHTS, _tensors(network))
        seal(draft, {"format": LEVELED, "version": VERSION, **about, **facts}, [WEIGHTS], described, key)


def read_leveled(folder: Path, key: PublicKey | None = None) -> LeveledProgram:
    """Read a leveled program.

    Args:
        folder: that :func:`write_leveled` made.
        key: that must have signed it; None for any program.

    Returns:
        The program with its weights.

    Raises:
        RuleError: missing, damaged, foreign, inconsistent, not signed with the key; or its parameters do not carry it.
    """
    data = read_manifest(folder, key, LEVELED, (VERSION,))
    files = checked_files(folder, data, (WEIGHTS,))
    try:
        tensors = safetensors.numpy.load(files[WEIGHTS])
        known = description.from_dict(data["description"])
        literals = list(data["layers"])
        if not 1 <= len(literals) <= _MAX_LAYERS:
            rule = f"a leveled program must have 1 to {_MAX_LAYERS} layers"
            raise RuleError(rule, got=f"{len(literals)}", remedy=REMEDY)
        layers = tuple(_layer(literal, tensors) for literal in literals)
        image = None if known.plan.image == layers[0].shape.input_shape else known.plan.image
        network = Chain(layers, known.plan.low, known.plan.high, image)
        program = LeveledProgram(network, str(data["planner"]), known.parameters, known.log_step, known.shift)
    except SafetensorError as error:
        got = f"{Path(folder) / WEIGHTS}: {error}"
        raise RuleError("a program's tensors must be whole safetensors files", got=got, remedy=REMEDY) from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, RuleError):
            raise
        raise RuleError("a leveled program must be complete", got=f"{folder}: {error!r:.200}", remedy=REMEDY) from None
    if description.to_dict(program.description) != data["description"]:
        rule = "a leveled program's description must follow from its weights and its plan"
        raise RuleError(rule, got=f"another in {folder}", remedy=REMEDY)
    return program


def _tensors(network: Chain) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for layer in network.layers:
        narrow = np.int8 if np.abs(layer.rows).max(initial=0) < 128 else np.int32
        found[f"{layer.name}.rows"] = layer.rows.astype(narrow)
        width = max(int(value).bit_length() // 8 + 1 for value in layer.bias)
        content = b"".join(int(value).to_bytes(width, "little", signed=True) for value in layer.bias)
        found[f"{layer.name}.bias"] = np.frombuffer(content, np.uint8).reshape(len(layer.bias), width)
    return found


def _layer(literal: Any, tensors: Mapping[str, np.ndarray]) -> ChainLayer:
    name, b = str(literal["name"]), int(literal["block_size"])
    shape = LinearShape(**{key: int(value) for key, value in literal["shape"].items()})
    shape.check_block_size(b)
    rows = checked_tensor(tensors, f"{name}.rows", shape.weight_shape(b)).astype(np.int64)
    width = tensors[f"{name}.bias"].shape[-1]
    if not 1 <= width <= _MAX_BIAS_BYTES:
        raise RuleError(f"a bias must have at most {_MAX_BIAS_BYTES} bytes", got=f"{width} in {name}", remedy=REMEDY)
    stored = checked_tensor(tensors, f"{name}.bias", (shape.out_channels, width)).astype(np.uint8)
    bias = np.array([int.from_bytes(row.tobytes(), "little", signed=True) for row in stored], dtype=object)
    return ChainLayer(name, shape, b, rows, bias)
