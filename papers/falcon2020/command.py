"""A trained network of squares in leveled BFV: what its program takes, and held-out images encrypted and checked."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from papers.falcon2020.circuits.noise import noise_bits
from papers.falcon2020.config import Falcon2020Config
from papers.falcon2020.lower import leveled_program
from papers.falcon2020.mode import Leveled
from papers.falcon2020.planning.parameters import distance_bits
from papers.falcon2020.protocol.leveled_program import LeveledProgram
from privcirnet.artifact.records import write_json
from privcirnet.artifact.run import check_replaced
from privcirnet.artifact.summaries import InferenceSummary, IntegerAudit, plain
from privcirnet.cli.console import counting, inference_bar, progress_bar, show
from privcirnet.cli.settings import script
from privcirnet.data import load_for
from privcirnet.he.bfv.noise import flood_bits
from privcirnet.he.rlwe.parameters import SECURITY_BITS
from privcirnet.he.system import threads
from privcirnet.runs.evaluation import evaluate
from privcirnet.runs.parties import RunOptions
from privcirnet.train import stages
from privcirnet.train.accuracy import predict


@script(Falcon2020Config, "falcon2020")
def main(config: Falcon2020Config) -> None:
    """Make the program, run the images, compare every slot with the circuit in clear, and write the summary."""
    check_replaced(asdict(config))
    with counting("Decoding images") as progress:
        data = load_for(config.data, progress)
    threads.use(config.threads)
    network = stages.load_network(config.init, data)
    program = leveled_program(config, network, data)
    summary = {"stage": "falcon2020", "program": program_facts(program), "config": asdict(config)}
    facts = _of_program(summary["program"])
    if config.images:
        images, labels = data.held_out(config.images)
        how = RunOptions(config.engine, config.weights_gb, apart=config.processes == 2, warm=True)
        with inference_bar(len(labels)) as progress:
            run = evaluate(Leveled(program), images.numpy().astype(np.int64), how, progress, progress_bar)
        reference = predict(network, data, images).argmax(dim=1).numpy()
        result = run.summary(reference, labels.numpy())
        summary |= plain(result)
        facts |= _of_images(result)
    write_json(Path(config.out) / "summary.json", summary)
    title = f"falcon2020: {len(program.exact.layers)} layers, plan {program.planner}"
    show(title, {**facts, "saved": Path(config.out) / "summary.json"})


def program_facts(program: LeveledProgram) -> dict[str, Any]:
    """Return what a program takes, as plain data; operations are those of each plain modulus."""
    parameters, circuit = program.parameters, program.plan.circuit
    (products, squares), level = circuit.levels, program.plan.public.primes
    return {
        "planner": program.planner,
        "plain_modulus_bits": parameters.moduli[0].plain_bits,
        "plain_moduli": len(parameters.moduli),
        "ring_degree": parameters.ring_degree,
        "log_q": max(sum(parameters.data_bits), sum(parameters.coefficient_bits) + sum(parameters.special_bits)),
        "security_bits": SECURITY_BITS,
        "noise_bits": noise_bits(circuit, parameters),
        "flooding_bits": min(flood_bits(parameters.at(i, level)) for i in range(len(parameters.moduli))),
        "flooding_distance_bits": distance_bits(parameters, circuit),
        "result_bits": program.exact.bits,
        "depth_products": products,
        "depth_squares": squares,
        "operations": dict(circuit.counts),
        "rotation_keys": len(circuit.rotations),
        "block_sizes": {layer.name: layer.block_size for layer in program.exact.layers},
    }


def _of_program(facts: dict[str, Any]) -> dict[str, str]:
    counts = ", ".join(f"{count} {name}" for name, count in facts["operations"].items())
    return {
        "parameters": f"n = {facts['ring_degree']}, log q = {facts['log_q']}, {facts['plain_moduli']} plain moduli "
        f"of {facts['plain_modulus_bits']} bits, 128-bit security",
        "results": f"{facts['result_bits']} bits, proved",
        "depth": f"{facts['depth_products']} products with weights, {facts['depth_squares']} squares",
        "operations": f"{counts}, for each plain modulus",
        "flooding": f"{facts['flooding_bits']} bits over the noise, an image's noise hidden to "
        f"2^-{facts['flooding_distance_bits']:.1f}",
    }


def _of_images(run: InferenceSummary) -> dict[str, str]:
    hidden = " (rehearsed: NOTHING WAS ENCRYPTED)" if run.rehearsal else ""
    (first, *others), audit = run.seconds_images, run.audit
    assert isinstance(audit, IntegerAudit)
    rest = f", {np.median(others):.3f} s the others (median)" if others else ""
    return {
        "top-1": f"float {run.top1_float:.2f} %, integer {audit.top1_clear:.2f} %, "
        f"{run.done} {run.top1_encrypted:.2f} %",
        "equal": f"{audit.logits_equal} of {run.images} images follow the integer network exactly, bit for bit, every "
        f"slot behind every layer{hidden}",
        "time": f"{first:.3f} s the first image{rest}; {run.seconds_setup:.1f} s to set up",
        "cost": f"{run.cost.bytes / 1e6:.2f} MB an image, keys {run.bytes_keys / 1e6:.2f} MB once",
    }
