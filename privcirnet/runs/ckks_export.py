"""A trained network to a CKKS program, under the settings of the group leveled/; it loads the kernels."""

from copy import deepcopy
from typing import Any

from torch import Tensor, nn

from privcirnet.config import LeveledConfig
from privcirnet.data.dataset import ImageData
from privcirnet.he.circuits.ckks.bootstrapping import Bootstrapping, parameters_for
from privcirnet.he.planning.ckks.ckks_program import CkksProgram, Rehearsed
from privcirnet.he.planning.ckks.costs import encoded_bytes, predicted
from privcirnet.he.planning.ckks.sums import sums_of
from privcirnet.he.rlwe.security import SECURITY_BITS
from privcirnet.passes.lower import lower_real
from privcirnet.runs.leveled_export import check_float


def ckks_program(config: LeveledConfig, network: nn.Module, data: ImageData) -> CkksProgram:
    """Return the CKKS program of a trained network, at n = 65536.

    Args:
        network: convolutions with squares or AESPA between them, residuals, an average pool and a linear layer, not
            quantized; left as it was.

    Raises:
        RuleError: the network has something else, is quantized already, or does not fit levels or slots.
    """
    check_float(network)
    examples: Tensor = data.real(data.sample(config.examples)[0])
    lowered = lower_real(deepcopy(network).eval(), data.shape)
    scales = sums_of(lowered).seen(examples.double().numpy())
    return CkksProgram(lowered, scales, Bootstrapping(parameters_for()), data.log_step)


def ckks_facts(program: CkksProgram, rehearsed: Rehearsed) -> dict[str, Any]:
    """Return what export.py says of a CKKS program in its summary."""
    circuit, counting, parameters = rehearsed.circuit, rehearsed.counting, program.refresh.parameters
    layers, network = {"bootstrapping": 0.0, "layers": 0.0}, program.sums
    for name, seconds in predicted(circuit, counting).items():
        layers["bootstrapping" if name.endswith(" bootstrapping") else "layers"] += seconds
    operations = {name: count for name, count in counting.total.items() if name != "raised"}
    return {
        "mode": "leveled",
        "scheme": "ckks",
        "planner": "slots",
        "ring_degree": parameters.ring_degree,
        "log_q": parameters.log_q,
        "security_bits": SECURITY_BITS,
        "scale_bits": parameters.scale_bits,
        "levels": parameters.levels,
        "level_image": circuit.schedule.image,
        "bootstrappings": rehearsed.bootstrappings,
        "failure_bits": program.refresh.failure_bits,
        "precision_bits": rehearsed.reply.precision_bits,
        "bounds": "measured",
        "depth_squares": len(network.nodes),
        "operations": operations,
        "rotation_keys": len(counting.keys),
        "bytes_keys_server": rehearsed.key_bytes,
        "bytes_weights": encoded_bytes(counting),
        "processor_seconds_predicted": layers,
    }
