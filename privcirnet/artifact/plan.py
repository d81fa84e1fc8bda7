"""The plan of a search: one file with the block size of every layer, or the layer that it becomes part of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privcirnet.artifact.records import VERSION, check_format, read_json, write_json
from privcirnet.errors import RuleError

REPLACEMENTS = ("aespa", "square", "identity")
"""Possible replacements of an activation: AESPA, a square, or nothing."""


def write_plan(path: Path, block_sizes: Mapping[str, int], **about: Any) -> None:
    """Write plan.json: the block size of every weighted layer, by module name, and the facts of the search.

    Raises:
        RuleError: the disk is full.
    """
    head = {"format": "privcirnet-plan", "version": VERSION, "block_sizes": dict(block_sizes)}
    write_json(path, {**head, **about})


def read_plan(path: Path, **expected: str) -> dict[str, int]:
    """Read plan.json.

    Args:
        expected: facts that it must have, such as ``model`` and ``checkpoint``; keys that the plan lacks are not
            checked.

    Returns:
        Block sizes by module name.
    """
    data = read_json(path, "a plan", "make one with search.py")
    check_format(data, "privcirnet-plan", path)
    if "masks" in data:
        raise RuleError("a plan must be of block sizes alone", got=f"{path} with masks", remedy="use papers.pareto")
    block_sizes = data.get("block_sizes")
    if not isinstance(block_sizes, dict) or any(type(b) is not int or b < 1 for b in block_sizes.values()):
        raise RuleError("a plan must map module names to block sizes", got=f"{path}", remedy="make one with search.py")
    for key, value in expected.items():
        if data.get(key, value) != value:
            got = f"{path} for {key} {data[key]}, used with {value}"
            remedy = f"search again, or remove {key} from the plan if it fits nevertheless"
            raise RuleError(f"a plan must be for this {key}", got=got, remedy=remedy)
    return block_sizes


def plan_pads(path: Path) -> bool:
    """Return whether a plan is for layers that are padded where its block sizes do not divide."""
    return read_json(path, "a plan", "make one with search.py").get("pad") is True


def plan_composed(path: Path) -> tuple[str, ...]:
    """Return the layers that a plan composes with the layer before them."""
    composed = read_json(path, "a plan", "make one with search.py").get("composed", [])
    if not isinstance(composed, list) or any(not isinstance(name, str) for name in composed):
        raise RuleError("a plan must list composed layers by name", got=path, remedy="make one with search.py")
    return tuple(composed)


def plan_activations(path: Path, model: str) -> dict[str, str]:
    """Return the replacements of the activations that a plan replaces, by module name."""
    read_plan(path, model=model)
    kinds, remedy = (*REPLACEMENTS, "own"), "make one with search.py activations=[aespa]"
    activations = read_json(path, "a plan", remedy).get("activations")
    if not isinstance(activations, dict) or any(kind not in kinds for kind in activations.values()):
        raise RuleError(f"a plan must make activations one of {', '.join(kinds)}", got=f"{path}", remedy=remedy)
    return {name: kind for name, kind in activations.items() if kind != "own"}
