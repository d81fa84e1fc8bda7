"""The masks of a pruned network: a safetensors file beside the plan.json that names it."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from privcirnet.artifact.records import VERSION, check_format, read_json, write_tensors
from privcirnet.errors import RuleError
from privcirnet.he.system.files import replacing

Mask = npt.NDArray[np.bool_]

_FORMAT = "privcirnet-masks"


def write_masks(path: Path, masks: Mapping[str, Mask]) -> None:
    """Write which weights of each layer stay.

    Args:
        masks: bool, of each weight's shape, by module name.

    Raises:
        RuleError: the disk is full.
    """
    about = {"format": _FORMAT, "version": str(VERSION)}
    with replacing(path) as draft:
        write_tensors(draft, {name: mask.astype(np.bool_) for name, mask in masks.items()}, about)


def read_masks(plan: Path) -> dict[str, Mask]:
    """Read the masks that a plan.json names, if any.

    Returns:
        Whether each weight stays, by module name; {} for a plan of block sizes alone.

    Raises:
        RuleError: the plan or its masks are missing, damaged or foreign.
    """
    name = read_json(plan, "a plan", "make one with search.py").get("masks", "")
    if not name:
        return {}
    path, remedy = plan.parent / Path(str(name)).name, "make the plan again"
    if not path.is_file():
        raise RuleError("the masks of a plan must lie beside it", got=path, remedy=remedy)
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            masks = {key: file.get_tensor(key) for key in file.keys()}
    except SafetensorError as error:
        raise RuleError("masks must be a whole safetensors file", got=f"{path}: {error}", remedy=remedy) from None
    check_format(about, _FORMAT, path)
    if wrong := [key for key, mask in masks.items() if mask.dtype != np.bool_]:
        raise RuleError("masks must be true or false", got=f"{path}: {', '.join(wrong)}", remedy=remedy)
    return masks
