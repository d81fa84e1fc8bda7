"""privcirnet's row: what infer.py measured with client and server in two processes, in the form of the others.

python infer.py processes=2 images=100 ...
python benchmarks/peers/ours.py outputs/infer/summary.json outputs/export/summary.json

With prepare=8 it is the row of prepared images: what was done before them is kept beside it.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
from peer import Result, add_out, write


def error(infer: dict[str, Any], network: Path | None) -> float:
    """Return the largest error of any logit, against the float network if it is known, else the integer network."""
    if network is None:
        return infer["audit"]["logit_max_difference"]
    found = np.array([row["logits"] for row in infer["predictions"]])
    with np.load(network) as known:
        if known["labels"].tolist() != [row["label"] for row in infer["predictions"]]:
            sys.exit(f"error: both must have taken the same images: run infer.py with images={len(known['labels'])}")
        return float(np.abs(found - known["logits"]).max())


def size(cost: dict[str, Any]) -> int:
    """Return the bytes of an image, both ways."""
    return cost["bytes_up"] + cost["bytes_down"]


def main() -> None:
    """Write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("infer", type=Path, help="summary.json of infer.py with processes=2")
    parser.add_argument("export", type=Path, help="summary.json of export.py")
    parser.add_argument("--network", default="tutorial", choices=("tutorial", "resnet18"))
    parser.add_argument("--variant", default="", help="in words, for the table: b = 8")
    parser.add_argument("--arrays", type=Path, help="of network.py, for errors against the float network")
    add_out(parser, "privcirnet")
    given = parser.parse_args()
    infer, export = (json.loads(path.read_text()) for path in (given.infer, given.export))
    rows, times, phases, audit = infer["predictions"], infer["seconds_images"], infer["phases"], infer["audit"]
    if phases["prepared"] not in {0, infer["images"]}:
        sys.exit(f"error: all images must be prepared, or none: {phases['prepared']} of {infer['images']} were")
    words = f"n = {export['ring_degree']}, log q = {export['log_q']}, t of {export['plain_modulus_bits']} bits"
    write(
        given.out,
        Result(
            network=given.network,
            peer="privcirnet",
            version=given.variant,
            activation="square",
            interactive=True,
            parameters=f"BFV, {words}",
            seconds=statistics.median(times[1:] or times),
            seconds_first=times[0],
            seconds_all=times,
            cpu_seconds=infer["seconds_client"] + audit["seconds_server"],
            bytes_image=size(phases["online"]),
            bytes_once=infer["bytes_keys"],
            peak_bytes=infer["memory"],
            images=infer["images"],
            same_class=sum(row["float"] == row["encrypted"] for row in rows),
            correct=sum(row["label"] == row["encrypted"] for row in rows),
            largest_error=error(infer, given.arrays),
            notes=f"{audit['logits_equal']} of {infer['images']} images follow the integer network exactly",
            before={"seconds": phases["offline"]["seconds"], "bytes": size(phases["offline"])},
        ),
    )


if __name__ == "__main__":
    main()
