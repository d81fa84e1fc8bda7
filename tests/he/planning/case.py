"""A small network as it is judged and planned by the tests of this folder."""

import dataclasses

from privcirnet.errors import RuleError
from privcirnet.he.bfv.noise import check_noise, noise_bits
from privcirnet.he.bfv.parameters import Parameters, ParameterSet
from privcirnet.he.bfv.parameters import choose as choose_parameters
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.parameter_choice import (
    SETS,
    ParameterCandidate,
    ParameterChoice,
    Requirements,
    choose,
    requirements,
)
from privcirnet.he.planning.plan_program import options
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program import bounds
from tests.he.networks import network

LOCAL, DEFAULT, FASTEST = LINKS["local"], SETS[0], SETS[4]
NETWORK = network()
INTERVALS = bounds.prove(NETWORK)
SIZES = bounds.largest_sizes(INTERVALS)
LENGTHS = set().union(*(layer.transform_lengths for _, layer in NETWORK.linear_nodes))


def wants(bits: float = 8, **changes: object) -> Requirements:
    return dataclasses.replace(requirements(NETWORK.nodes, INTERVALS, SIZES, bits), **changes)


def candidates(*sets: ParameterSet) -> tuple[ParameterCandidate, ...]:
    return options(NETWORK.nodes, COUNTED, LOCAL, sets or SETS)


def choice(bits: float = 8, **changes: object) -> ParameterChoice:
    return choose(wants(bits, **changes), candidates())


def products(option: ParameterCandidate) -> int:
    return max(layer.products_per_sum for layer in option.layers)


def fits(option: ParameterCandidate, t: int, bits: float) -> bool:
    """By the functions of params and bounds that the protocol and the export rest on."""
    n, coefficient_bits = option.parameters.ring_degree, option.parameters.coefficient_bits
    program = dataclasses.replace(NETWORK, parameters=Parameters(n, coefficient_bits, t))
    try:
        bounds.check_modulus(program, INTERVALS)
        noise = noise_bits(n, t.bit_length(), products(option))
        check_noise(program.parameters, noise, "any")
    except RuleError:
        return False
    return bounds.wrap_probability(program, SIZES) <= 2.0**-bits


def exhaustive(option: ParameterCandidate, bits: float) -> list[int]:
    """Every t that fits, the largest of each size."""
    found, n = [], option.parameters.ring_degree
    for size in range(15, 61):
        try:
            t = choose_parameters(LENGTHS, size, n, option.parameters.coefficient_bits).plain_modulus
        except RuleError:
            continue
        found += [t] if fits(option, t, bits) else []
    return found


LONG, ODD = ParameterSet(8192, (60, 60, 60, 60)), ParameterSet(8192, (61, 60))
