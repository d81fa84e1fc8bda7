"""Turn a quantized network into a program folder for encrypted inference. `python export.py --help`."""

import math
import time
from dataclasses import asdict, replace
from pathlib import Path

from torch import fx

from privcirnet.artifact import PLAINTEXTS, folder_bytes, write_json, write_program
from privcirnet.cli import console, counting, find_profile, profile_at, script, show
from privcirnet.config import ExportConfig
from privcirnet.data import load_for
from privcirnet.data.dataset import ImageData
from privcirnet.he import bounds, params
from privcirnet.he.chooser import SETS, sets_for
from privcirnet.he.cost import LINKS, Profile
from privcirnet.he.fitting import Target
from privcirnet.he.options import set_of
from privcirnet.lower import Lowered, lower_refined
from privcirnet.training import stages


@script(ExportConfig)
def main(config: ExportConfig) -> None:
    """Lower, prove the bounds, choose the parameters, write."""
    started, out = time.perf_counter(), Path(config.out)
    with counting("Decoding images") as progress:
        data = load_for(config.data, progress)
    network = stages.load_network(config.init, data)
    lowered, profile = _lower(config, network, data)
    program, intervals = lowered.program, lowered.fitted.intervals
    about = {"data": config.data.name, "classes": list(data.classes), "source": config.init}
    write_program(out / "program", program, about, full=config.plaintexts == "full")
    write_json(out / "profile.json", profile.to_dict())
    compact = [(8 * math.prod(layer.spectrum_shape), layer.block_size) for _, layer in program.linear_nodes]
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
        "guard_bits": lowered.guard_bits,
        "choice": lowered.choice.to_dict(),
        "truncation": bounds.truncation_facts(program, intervals),
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
            "choice": lowered.choice.reason(),
            "largest value": f"{summary['max_value_bits']} bits, proved",
            "truncation": _in_words(summary["truncation"]),
            "plaintexts": f"{summary['files'][PLAINTEXTS]:,} bytes (dense: {summary['bytes_plaintexts_dense']:,})",
            "saved": out / "program",
        },
    )


def _lower(config: ExportConfig, network: fx.GraphModule, data: ImageData) -> tuple[Lowered, Profile]:
    """The program, and the profile at its set of parameters that its plans were chosen by."""
    he, shape = config.he, tuple(data.train_images.shape[1:])
    sets, profile = sets_for(he.ring_degree, he.coefficient_bits), find_profile(he)
    if he.coefficient_bits:
        profile = profile_at(profile, sets[0], he.engine)
    elif he.ring_degree in (0, profile.ring_degree):
        sets = (set_of(profile), *sets)
    auto = not he.coefficient_bits
    target = Target(profile, LINKS[he.link], he.masks, he.failure_bits, he.hiding_bits, sets if auto else SETS, auto)
    with console.status("lowering"):
        lowered = lower_refined(network, shape, data.levels, data.log_step, target, he.guard_bits)
    profile = profile_at(profile, lowered.choice.set, he.engine)
    if profile is target.profile:
        return lowered, profile
    measured = replace(target, profile=profile, sets=(), auto=False)
    with console.status("planning"):
        again = lower_refined(network, shape, data.levels, data.log_step, measured, he.guard_bits)
    return replace(again, choice=lowered.choice), profile


def _in_words(facts: dict[str, object]) -> str:
    failure = facts["failure_per_image_log2"]
    wrong = "never wrong" if failure is None else f"an image is wrong with probability at most 2^{failure:.1f}, proved"
    return f"{facts['masks']} masks, hiding {facts['hiding']}, {wrong}"


if __name__ == "__main__":
    main()
