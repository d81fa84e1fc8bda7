"""Layers of a network that can become block circulant, and the reasons why others cannot.

Each layer is judged alone, by the rules of `privcirnet.passes.convert.circulant_`. That function has further conditions
on the whole network: torch.fx must be able to trace it, and it must find the batch norms behind converted convolutions.

Cost: reads shapes; computes nothing on tensors.
"""

from torch import nn

from privcirnet.errors import RuleError
from privcirnet.passes.convert import checked_layer, paddable


def candidates(model: nn.Module, block_size: int) -> dict[str, str]:
    """Say of every layer whether it can be converted at one block size.

    Args:
        model: A network; left as it was.
        block_size: Block size b.

    Returns:
        For each Linear and Conv2d by module name, in order of definition: an empty string where it can be converted,
        else the rule that it breaks and its value.

    >>> candidates(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=2), nn.Conv2d(8, 4, 1)), 4)["2"]
    ''
    >>> candidates(nn.Sequential(nn.Linear(3, 8)), 4)["0"]
    "block size must divide both weight dimensions: 4 for (8, 3) at '0'"
    """
    layers = [key for key, m in model.named_modules(remove_duplicate=False) if isinstance(m, nn.Linear | nn.Conv2d)]
    return {name: _reason(model, name, block_size) for name in layers}


def uniform_sizes(model: nn.Module, block_size: int, *, pad: bool = False) -> dict[str, int]:
    """Return one block size everywhere: for every layer the largest power of two up to b that it can have.

    Args:
        block_size: Block size b, a power of two.

    Returns:
        Block size for each Linear and Conv2d by module name; 1 where it stays dense.

    >>> uniform_sizes(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 10, 1)), 4)
    {'0': 1, '1': 4, '2': 2}
    >>> uniform_sizes(nn.Sequential(nn.Linear(845, 100), nn.Linear(100, 10)), 8, pad=True)
    {'0': 8, '1': 8}
    """
    if block_size < 1 or block_size & (block_size - 1):
        raise RuleError("a uniform block size must be a power of two", got=block_size, remedy="use 2, 4, 8 or 16")
    sizes = dict.fromkeys(candidates(model, 1), 1)
    padded, size = paddable(model) if pad else frozenset[str](), 2
    while size <= block_size:
        sizes |= {name: size for name in sizes if not _reason(model, name, size, pad=name in padded)}
        size *= 2
    return sizes


def _reason(model: nn.Module, name: str, block_size: int, *, pad: bool = False) -> str:
    """Return why a layer must stay dense; empty if it need not."""
    try:
        checked_layer(model, name, block_size, pad=pad)
    except RuleError as error:
        return f"{error.rule}: {error.got}"
    return ""
