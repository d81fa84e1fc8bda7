"""Turn a quantized network into a program folder for encrypted inference. `python export.py --help`."""

import math
import time
from dataclasses import asdict
from pathlib import Path

from privcirnet.artifact import PLAINTEXTS, folder_bytes, read_profile, write_json, write_program
from privcirnet.cli import console, script, show
from privcirnet.config import ExportConfig
from privcirnet.data import load
from privcirnet.he import bounds, params
from privcirnet.he.cost import LINKS
from privcirnet.lower import Target, lower_refined
from privcirnet.training import stages


@script(ExportConfig)
def main(config: ExportConfig) -> None:
    """Lower, prove the bounds, choose the parameters, write."""
    started, out = time.perf_counter(), Path(config.out)
    data = load(config.data.name, config.data.seed, config.data.test_fraction)
    network = stages.load_network(config.init, data)
    he = config.he
    target = Target(read_profile(Path(he.profile)), LINKS[he.link], he.masks, he.failure_bits, he.hiding_bits)
    with console.status("lowering"):
        shape = tuple(data.train_images.shape[1:])
        program, guard = lower_refined(network, shape, data.levels, data.log_step, target, he.guard_bits)
        about = {"data": config.data.name, "classes": list(data.classes), "source": config.init}
        write_program(out / "program", program, about, full=config.plaintexts == "full")

    intervals = bounds.prove(program)
    compact = [(8 * math.prod(layer.layout.spectrum_shape), layer.block_size) for _, layer in program.linear_nodes]
    summary = {
        "stage": "export",
        "program": str(out / "program"),
        "plain_modulus": program.parameters.plain_modulus,
        "plain_modulus_bits": program.parameters.plain_bits,
        "ring_degree": program.parameters.ring_degree,
        "log_q": program.parameters.log_q,
        "security_bits": params.SECURITY_BITS,
        "max_value_bits": max(bounds.value_bits(interval) for interval in intervals.values()),
        "bounds_bits": {name: bounds.value_bits(interval) for name, interval in intervals.items()},
        "guard_bits": guard,
        "truncation": truncation_facts(program, intervals),
        "bytes_plaintexts": sum(size for size, _ in compact),
        "bytes_plaintexts_dense": sum(size * b for size, b in compact),
        "files": folder_bytes(out / "program"),
        "seconds": time.perf_counter() - started,
        "config": asdict(config),
    }
    write_json(out / "summary.json", summary)
    show(
        f"export: {len(program.nodes)} nodes, {len(program.linear_nodes)} of them with weights",
        {
            "parameters": f"n = {program.parameters.ring_degree}, log q = {program.parameters.log_q}, "
            f"t of {program.parameters.plain_bits} bits, 128-bit security",
            "largest value": f"{summary['max_value_bits']} bits, proved",
            "truncation": _in_words(summary["truncation"]),
            "plaintexts": f"{summary['files'][PLAINTEXTS]:,} bytes (dense: {summary['bytes_plaintexts_dense']:,})",
            "saved": out / "program",
        },
    )


def truncation_facts(program, intervals) -> dict[str, object]:
    """How wrong or how revealing truncation on shares can be."""
    if program.masks == "bounded":
        hidden = f"statistical, 2^-{bounds.hiding_bits(program, intervals):.1f} an image"
        return {"masks": "bounded", "hiding": hidden, "failure_per_image_log2": None}
    failure = math.log2(max(bounds.wrap_probability(program, intervals), 2.0**-200))
    return {"masks": "uniform", "hiding": "perfect", "failure_per_image_log2": failure}


def _in_words(facts: dict[str, object]) -> str:
    failure = facts["failure_per_image_log2"]
    wrong = "never wrong" if failure is None else f"an image is wrong with probability at most 2^{failure:.1f}, proved"
    return f"{facts['masks']} masks, hiding {facts['hiding']}, {wrong}"


if __name__ == "__main__":
    main()
