"""A trained network to a leveled program, under the settings of the group leveled/."""

from copy import deepcopy
from typing import Any

from torch import fx, nn

from privcirnet.config import LeveledConfig
from privcirnet.data.dataset import ImageData
from privcirnet.errors import RuleError
from privcirnet.he.circuits.bfv.leveled.noise import noise_bits
from privcirnet.he.planning.leveled.chain import chain_of
from privcirnet.he.planning.leveled.parameters import distance_bits
from privcirnet.he.planning.leveled.plans import OWN, fastest
from privcirnet.he.program.operations import Input
from privcirnet.he.program.program import Network
from privcirnet.he.protocol.leveled.leveled_program import LeveledProgram
from privcirnet.he.rlwe.security import SECURITY_BITS
from privcirnet.he.schemes.bfv.noise import flood_bits
from privcirnet.passes.lower import lower_exact


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
    name, plan, parameters = fastest(chain_of(lowered), planners_of(config), engine)
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


def leveled_facts(program: LeveledProgram) -> dict[str, Any]:
    """Return what export.py says of a leveled program in its summary."""
    parameters, circuit = program.parameters, program.plan.circuit
    (products, squares), level = circuit.levels, program.plan.public.primes
    return {
        "mode": "leveled",
        "planner": program.planner,
        "plain_modulus": parameters.moduli[0].plain_modulus,
        "plain_modulus_bits": parameters.moduli[0].plain_bits,
        "plain_moduli": len(parameters.moduli),
        "ring_degree": parameters.ring_degree,
        "log_q": max(sum(parameters.data_bits), sum(parameters.coefficient_bits) + sum(parameters.special_bits)),
        "security_bits": SECURITY_BITS,
        "noise_bits": noise_bits(circuit, parameters),
        "flooding_bits": min(flood_bits(parameters.at(i, level)) for i in range(len(parameters.moduli))),
        "flooding_distance_bits": distance_bits(parameters, circuit),
        "max_value_bits": program.chain.bits,
        "bounds": "proved",
        "depth_products": products,
        "depth_squares": squares,
        "operations": dict(circuit.counts),
        "rotation_keys": len(circuit.rotations),
        "block_sizes": {layer.name: layer.block_size for layer in program.chain.layers},
    }


def check_float(network: nn.Module) -> None:
    """Raise unless a network is not quantized yet."""
    if isinstance(network, fx.GraphModule):
        rule, remedy = "a leveled program is made of a network before the qat stage", "give init=outputs/finetune"
        raise RuleError(rule, got="a quantized network", remedy=remedy)
