"""How much memory an encrypted image takes, predicted from the program alone."""

from privcirnet.errors import RuleError
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.framing.message_sizes import keys_in_memory, session_in_memory
from privcirnet.he.system.memory import machine_bytes

WEIGHTS_GB = 4.0
"""Of encoded weights that a server keeps, where nothing else is asked for; others are encoded again for every image."""
_PROCESS_BYTES = 8e8
"""Of a process beside weights and keys: libraries, values, messages. Measured with whole networks: 0.4 to 0.85 GB."""


def weight_bytes(program: Program) -> int:
    """Return the bytes of a program's weights, all encoded."""
    parameters = program.parameters.ring_degree, program.parameters.coefficient_bits
    return sum(layer.circuit.weight_bytes(*parameters) for _, layer in program.linear_nodes)


def needed_bytes(program: Program, weights_gb: float | None = None) -> int:
    """Return about how much memory server and client take in one process.

    Args:
        weights_gb: of encoded weights that are kept, in 10^9 bytes; None: all.
    """
    weights = weight_bytes(program)
    kept = weights if weights_gb is None else min(weights, int(1e9 * weights_gb))
    session = session_in_memory(program)
    return round(kept + 2 * session - keys_in_memory(program) + _PROCESS_BYTES)  # the client has a stock, too


def check_memory(program: Program, weights_gb: float, engine: str = "kernel") -> None:
    """Raise unless a program fits the memory that this process may take.

    Args:
        weights_gb: of encoded weights that are kept, in 10^9 bytes.
        engine: of the server: "kernel"; "tenseal", which keeps all weights; or "cleartext", which encodes none.
    """
    if not weights_gb >= 0:
        raise RuleError("weights_gb must be 0 or more", got=weights_gb, remedy="use 4")
    if engine == "cleartext":
        return
    needed, memory = needed_bytes(program, weights_gb if engine == "kernel" else None), machine_bytes()
    if needed > memory:
        smaller = "a smaller weights_gb" if engine == "kernel" and weights_gb else ""
        ways = [smaller, "larger block sizes", "smaller images", "a machine with more memory"]
        got, remedy = f"{needed / 1e9:.1f} GB of {memory / 1e9:.1f} GB", f"use {', '.join(filter(None, ways))}"
        raise RuleError("keys, encoded weights and what computes on them must fit the memory", got=got, remedy=remedy)
