"""A trained network to a leveled program of either scheme, under the settings of the group leveled/."""

from copy import deepcopy
from typing import TYPE_CHECKING

from torch import fx, nn

from privcirnet.config import LeveledConfig
from privcirnet.data.dataset import ImageData
from privcirnet.errors import RuleError
from privcirnet.he.planning.leveled.bfv.exact_network import exact_network_of
from privcirnet.he.planning.leveled.bfv.plans import OWN, fastest
from privcirnet.he.program.operations import Input
from privcirnet.he.program.program import Network
from privcirnet.he.protocol.leveled.bfv.leveled_program import LeveledProgram
from privcirnet.passes.lower import lower_exact, lower_real

if TYPE_CHECKING:  # it loads the kernels
    from privcirnet.he.planning.leveled.ckks.ckks_program import CkksProgram


def leveled_program(
    config: LeveledConfig, network: nn.Module, data: ImageData, engine: str = "kernel"
) -> LeveledProgram:
    """Return the leveled program of a trained network.

    Args:
        network: of linear layers with a square (or AESPA) between each two, not quantized; left as it was.
        engine: that it is for: "kernel" or "tenseal".

    Raises:
        RuleError: the network has something else, or none of the plans is for it.
        DoesNotFit: it is deeper, or its values are larger, than any parameters carry.
    """
    lowered, shift = lowered_for(config, network, data)
    name, plan, parameters = fastest(exact_network_of(lowered), planners_of(config), engine)
    return LeveledProgram(lowered, name, parameters, shift, plan)


def planners_of(config: LeveledConfig) -> tuple[str, ...]:
    """Return the names of the plans that compete."""
    return OWN if config.plan == "auto" else (config.plan,)


def lowered_for(config: LeveledConfig, network: nn.Module, data: ImageData) -> tuple[Network, int]:
    """Return the integers of a trained network, and how many bits of a stored pixel are dropped.

    Raises:
        RuleError: the network has something else, or is quantized already.
    """
    check_float(network)
    shift = max(data.levels.bit_length() - config.pixel_bits, 0)
    source, exact = Input(0, data.levels >> shift), deepcopy(network).double()
    return lower_exact(exact, data.shape, source, data.log_step + shift, config.weight_bits), shift


def ckks_program(config: LeveledConfig, network: nn.Module, data: ImageData) -> "CkksProgram":
    """Return the CKKS program of a trained network, at n = 65536.

    Args:
        network: convolutions with squares or AESPA between them, residuals, an average pool and a linear layer, not
            quantized; left as it was.

    Raises:
        RuleError: the network has something else, is quantized already, or does not fit levels or slots.
    """
    from privcirnet.he.circuits.ckks.bootstrapping import Bootstrapping, parameters_for
    from privcirnet.he.planning.leveled.ckks.ckks_program import CkksProgram
    from privcirnet.he.planning.leveled.ckks.sums import sums_of

    check_float(network)
    examples = data.real(data.sample(config.examples)[0])
    lowered = lower_real(deepcopy(network).eval(), data.shape)
    scales = sums_of(lowered).seen(examples.double().numpy())
    return CkksProgram(lowered, scales, Bootstrapping(parameters_for()), data.log_step)


def check_float(network: nn.Module) -> None:
    """Raise unless a network is not quantized yet."""
    if isinstance(network, fx.GraphModule):
        rule, remedy = "a leveled program is made of a network before the qat stage", "give init=outputs/finetune"
        raise RuleError(rule, got="a quantized network", remedy=remedy)
