"""The memory of an encrypted image, predicted from the program alone."""

from collections.abc import Sequence
from numbers import Real

from privcirnet.errors import RuleError
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.he.system.process import machine_bytes

WEIGHTS_GB = 4.0
"""Default size in GB of encoded weights that a server keeps; others are encoded again for every image."""


_PROCESS_BYTES = 5e8
"""Bytes of a process beside weights and sessions: libraries, and the buffers of a reply."""


def weight_bytes(program: Program) -> int:
    """Return the bytes of a program's weights, all encoded."""
    parameters = program.parameters.ring_degree, program.parameters.coefficient_bits
    return sum(layer.circuit.weight_bytes(*parameters) for _, layer in program.linear_nodes)


def needed_bytes(program: Program, weights_gb: float | None = None) -> int:
    """Return the approximate bytes of server and client in one process.

    Args:
        weights_gb: size of encoded weights that are kept, in 10^9 bytes; None: all.
    """
    weights, schedule = weight_bytes(program), schedule_of(program)
    cached = weights if weights_gb is None else min(weights, int(1e9 * weights_gb))
    return round(cached + schedule.server_bytes + schedule.client_bytes + _PROCESS_BYTES)


def check_memory(program: Program, weights_gb: float | None, engine: str = "kernel") -> None:
    """Raise unless a program fits the memory that this process may take.

    Args:
        weights_gb: size of encoded weights that are kept, in 10^9 bytes; None: all.
        engine: engine of the server: "kernel"; "tenseal", which keeps all weights; or "cleartext", which encodes none.
    """
    if weights_gb is not None and not (isinstance(weights_gb, Real) and weights_gb >= 0):
        raise RuleError("weights_gb must be 0 or more", got=weights_gb, remedy="use 4")
    if engine == "cleartext":
        return
    needed, memory = needed_bytes(program, weights_gb if engine == "kernel" else None), machine_bytes()
    if needed > memory:
        smaller = "a smaller weights_gb" if engine == "kernel" and weights_gb else ""
        ways = [smaller, "larger block sizes", "smaller images", "a machine with more memory"]
        got, remedy = f"{needed / 1e9:.1f} GB of {memory / 1e9:.1f} GB", f"use {', '.join(filter(None, ways))}"
        raise RuleError("keys, encoded weights and what computes on them must fit the memory", got=got, remedy=remedy)


def check_sessions(programs: Sequence[Program], weights_gb: float, sessions: int) -> None:
    """Raise unless a server's sessions fit the memory that its process may take, beside encoded weights.

    Args:
        weights_gb: size of encoded weights that are kept of all programs together, in 10^9 bytes.
        sessions: most sessions at once.
    """
    size = max((schedule_of(program).server_bytes for program in programs), default=0)
    weights, memory = min(sum(map(weight_bytes, programs)), int(1e9 * weights_gb)), machine_bytes()
    room = memory - weights - _PROCESS_BYTES
    if sessions * size > room:
        got = f"{sessions} of {size / 1e9:.2f} GB beside {weights / 1e9:.1f} GB of weights, in {memory / 1e9:.1f} GB"
        fewer = f"use sessions={int(room // size)}, or " if room > size else "use "
        remedy = f"{fewer}a smaller weights_gb, a program of smaller images or a machine with more memory"
        raise RuleError("all sessions of a server must fit its memory", got=got, remedy=remedy)
