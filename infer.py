"""Classify held-out images encrypted and check every step of it. `python infer.py --help`."""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from privcirnet.artifact import read_profile, read_program, write_arrays, write_json
from privcirnet.cli import counting, progress_bar, script, show
from privcirnet.config import InferConfig
from privcirnet.data import load_for
from privcirnet.evaluation import evaluate
from privcirnet.he import threads
from privcirnet.he.cost import LINKS
from privcirnet.he.room import Room
from privcirnet.training import stages
from privcirnet.training.loop import predict


@script(InferConfig)
def main(config: InferConfig) -> None:
    """Float, integer and encrypted predictions of held-out images, side by side."""
    out = Path(config.out)
    program, spectra = read_program(Path(config.program))
    profile = read_profile(Path(config.profile))
    with counting("Decoding images") as progress:
        data = load_for(config.data, progress)
    images, labels = data.held_out(config.images)
    network = stages.load_network(config.reference, data)
    clear = predict(network, data, images).argmax(dim=1).numpy()

    threads.use(config.threads)
    room = Room(int(1e9 * config.weights_gb), Path(config.weights_folder) if config.weights_folder else None)
    with progress_bar("Encrypted inference (images)", len(labels)) as advance:
        result = evaluate(program, spectra, images.numpy().astype(np.int64), config.engine, advance, room)
    summary = {
        "stage": "infer",
        "engine": config.engine,
        **result.summary(clear, labels.numpy(), profile, LINKS["local"]),
        "config": asdict(config),
    }
    pictures = images.permute(0, 2, 3, 1).numpy() * (255 // data.levels)
    write_arrays(out / "images.npz", images=pictures[..., 0] if pictures.shape[-1] == 1 else pictures)
    write_json(out / "summary.json", summary)
    show(
        f"infer: {summary['images']} images, engine {config.engine}"
        + (", NOTHING WAS ENCRYPTED" if config.engine == "cleartext" else ""),
        {
            "top-1": f"float {summary['top1_float']:.2f} %, integer {summary['top1_integer']:.2f} %, "
            f"encrypted {summary['top1_encrypted']:.2f} %",
            "equal": f"{summary['logits_equal']} images follow the integer network exactly, up to {summary['unit']}; "
            f"{summary['argmax_equal']} with the same class",
            "cost": f"{summary['seconds_per_image']:.3f} s and {summary['bytes_per_image'] / 1e6:.2f} MB an image, "
            f"keys {summary['bytes_keys'] / 1e6:.2f} MB once",
            "saved": out / "summary.json",
        },
    )


if __name__ == "__main__":
    main()
