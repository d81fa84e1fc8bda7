"""Collection of the results in results/ into the table of README.md, between its two marks.

python benchmarks/peers/collect.py
"""

import argparse
import json
from pathlib import Path
from typing import Any

from peer import HERE

BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"
NETWORKS = {
    "tutorial": "Tutorial network, MNIST",
    "resnet18": "ResNet-18, 32 x 32, 100 classes",
    "relus": "65,536 ReLUs",
}
HEADER = (
    "system",
    "activation",
    "client takes part",
    "seconds an image",
    "of processors",
    "MB an image",
    "MB once",
    "peak memory, MB",
    "class as in clear",
    "largest error of a logit",
)


def megabytes(count: float | None) -> str:
    """Return bytes as megabytes for the table, "-" where they are unknown."""
    return "-" if count is None else f"{count / 1e6:.3g}" if count < 1e9 else f"{count / 1e6:.0f}"


def row(found: dict[str, Any]) -> tuple[str, ...]:
    """Return the row of one result."""
    memory = ", ".join(f"{name} {peak / 1e6:.0f}" for name, peak in found["peak_bytes"].items())
    times = sorted(found["seconds_all"][1:] or found["seconds_all"])
    return (
        f"{found['peer']} {found['version']}: {found['parameters']}",
        found["activation"],
        "yes" if found["interactive"] else "no",
        f"{found['seconds']:.3g} ({times[0]:.3g} to {times[-1]:.3g})",
        f"{found['cpu_seconds']:.3g}",
        megabytes(found["bytes_image"]),
        megabytes(found["bytes_once"]),
        memory,
        f"{found['same_class']} of {found['images']}",
        f"{found['largest_error']:.2g}",
    )


def before(found: dict[str, Any]) -> str:
    """Return a sentence on what was done before the image; nothing if nothing was."""
    done = found.get("before")
    if not done:
        return ""
    cost = f"{done['seconds']:.3g} s and {megabytes(done['bytes'])} MB for each image"
    return f" {found['peer']} {found['version']}: everything encrypted was done before the image came, and took {cost}."


def table(results: list[dict[str, Any]], network: str) -> str:
    """Return the table in Markdown: the fastest first, a caption below."""
    some = sorted((one for one in results if one["network"] == network), key=lambda one: one["seconds"])
    if not some:
        return ""
    lines = [HEADER, ("---",) * len(HEADER), *map(row, some)]
    loads = [one["machine"]["load"] for one in some]
    machine = some[0]["machine"]
    caption = (
        f"Medians of warm images, in brackets the least and the most, beside them the seconds of all processors and "
        f"parties together, which depend less on what else runs; {machine['cores']} cores of a shared "
        f"{machine['processor']}, load average {min(loads):.1f} to {max(loads):.1f} when a run ended."
    )
    caption += "".join(map(before, some))
    body = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"### {NETWORKS[network]}\n\n{body}\n\n{caption}\n"


def main() -> None:
    """Rewrite the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--readme", type=Path, default=HERE / "README.md")
    given = parser.parse_args()
    results = [json.loads(path.read_text()) for path in sorted(given.results.glob("*.json"))]
    text = given.readme.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    tables = "\n".join(filter(None, (table(results, network) for network in NETWORKS)))
    given.readme.write_text(before + BEGIN + tables + END + after)


if __name__ == "__main__":
    main()
