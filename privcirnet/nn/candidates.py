"""Which layers of a network can become block circulant, and why the others cannot.

Each layer is judged alone, by the rules of `privcirnet.nn.convert.circulant_`. For a whole network that function also
needs the batch norms behind the converted convolutions, and refuses one that torch.fx cannot trace.

Cost: reads shapes; nothing is computed on tensors.
"""

from torch import nn

from privcirnet.errors import RuleError
from privcirnet.nn.convert import checked_layer


def candidates(model: nn.Module, b: int) -> dict[str, str]:
    """Say of every layer whether it can be converted at one block size.

    Args:
        model: A network; left as it was.
        b: Block size.

    Returns:
        For each Linear and Conv2d by module name, in order of definition: an empty string where it can be converted,
        else the rule that it breaks and its value.

    >>> candidates(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=2), nn.Conv2d(8, 4, 1)), 4)["2"]
    ''
    >>> candidates(nn.Sequential(nn.Linear(3, 8)), 4)["0"]
    "block size must divide both weight dimensions: 4 for (8, 3) at '0'"
    """
    layers = [key for key, m in model.named_modules(remove_duplicate=False) if isinstance(m, nn.Linear | nn.Conv2d)]
    return {name: _reason(model, name, b) for name in layers}


def _reason(model: nn.Module, name: str, b: int) -> str:
    """Why a layer stays dense, empty if it need not."""
    try:
        checked_layer(model, name, b)
    except RuleError as error:
        return f"{error.rule}: {error.got}"
    return ""
