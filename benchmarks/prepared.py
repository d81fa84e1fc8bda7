"""What is left of an inference once its encrypted work was done ahead, and what block sizes buy.

python benchmarks/prepared.py --networks mobilenetv2_cifar resnet18_cifar vit_cifar mobilenetv2_imagenet
python benchmarks/prepared.py --networks resnet18_cifar mobilenetv2_cifar --blocks 1 2 4 8 16
python benchmarks/prepared.py --networks resnet18_cifar_relu_silent mobilenetv2_cifar_relu6_silent --blocks 4
python benchmarks/prepared.py --programs cifar10=outputs/export/program

Client and server are two processes with gRPC on loopback in between. Preparation and an image take
turns; medians, after a turn that warms up. Every value of a first pair of images is compared with the integer
network. The named networks have random weights. Each turn is kept in --out: the same command goes on where it was
killed, and the tables and the picture there are of everything that was ever measured.
"""

import argparse
import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from phases import TOGETHER, connections, noise, turn, wrong_nodes
from untrained import NETWORKS, program_of

from benchmarks.bench.results import markdown
from privcirnet.artifact.program import read_program
from privcirnet.artifact.records import write_json, write_text
from privcirnet.artifact.summaries import plain
from privcirnet.cli.console import progress_bar
from privcirnet.he.system import threads
from privcirnet.he.system.process import keep_freed_memory, peak_bytes
from privcirnet.report import plots
from privcirnet.runs.evaluation import over_links
from privcirnet.runs.parties import ServerTask, start_server
from privcirnet.service.client import ServiceClient

_CORES = sorted(os.sched_getaffinity(0))
_CONNECTIONS = 6
"""The first loads the kernels."""
_NAMES = {"together": f"preparation, up to {TOGETHER} at once"}
_SINGLE = ("preparation", "online")
_SHOWN = 8
"""Block size of a network that has several, in the tables of phases."""
BEGIN, END = "<!-- measured -->\n", "<!-- end of what was measured -->\n"

Row = dict[str, Any]


def pin(server: int) -> None:
    """Give each party a core, and one thread, so that neither waits because the other computes."""
    first, second, *_ = _CORES
    threads.use(1)
    os.sched_setaffinity(0, {first})
    os.sched_setaffinity(server, {second})


def measured(kept: Path, row: Row, folder: Path, given: argparse.Namespace, together: int = TOGETHER) -> None:
    """Add turns to a row until it has enough, and keep it after each.

    Args:
        kept: JSON of the row.
        row: so far.
        folder: of the program.
        given: turns, how many; engine of both parties; pinned, whether each party has a core.
        together: most images to prepare at once.
    """
    if len(row.get("turns", [])) >= given.turns:
        return
    program, spectra = read_program(folder)
    image, set_of = noise(program), program.parameters
    if "wrong" not in row:
        bits = {"n": set_of.ring_degree, "log_q": sum(set_of.coefficient_bits), "t_bits": set_of.plain_bits}
        row |= bits | {"wrong": wrong_nodes(program, spectra, image, given.engine), "turns": [], "server_bytes": 0}
        write_json(kept, row)
    count = 1 if given.pinned else threads.count()
    task = ServerTask(program, spectra, given.engine, threads=count, audited=False)
    with start_server(task) as process, progress_bar(kept.stem, given.turns) as advance:
        if given.pinned:
            pin(process.number)
        if "connections" not in row:
            row["connections"] = connections(process.address, given.engine, _CONNECTIONS)
        with ServiceClient(process.address, given.engine) as remote:
            turn(remote, image, process.number, together)
            while len(row["turns"]) < given.turns:
                row["turns"].append(turn(remote, image, process.number, together))
                row["server_bytes"] = max(row["server_bytes"], peak_bytes(process.number))
                row |= {"load": os.getloadavg()[0], "cores": threads.count()}
                write_json(kept, row)
                advance(to=len(row["turns"]))


def figures(row: Row) -> dict[str, dict[str, Any]]:
    """Return the medians of a row by phase, with seconds over links."""
    found = dict[str, dict[str, Any]]()
    for phase in row["turns"][0]:
        one = {name: median(turn[phase][name] for turn in row["turns"]) for name in row["turns"][0][phase]}
        found[phase] = one | {"links": plain(over_links(one["seconds"], one["bytes"], one["rounds"]))}
    return found


def phase_table(rows: list[Row]) -> str:
    """Return the table of all phases in Markdown, a line for each."""
    lines = list[dict[str, str]]()
    for row in rows:
        for phase, one in figures(row).items():
            links = {f"{name.upper()} s": f"{over['seconds']:.2f}" for name, over in one["links"].items()}
            cells = {"seconds": f"{one['seconds']:.3f}", "of them the client's": f"{one['client']:.3f}"}
            cells |= {"processor s": f"{one['processor']:.2f}" if "processor" in one else "-"}
            cells |= {"MB": f"{one['bytes'] / 1e6:.1f}", "rounds": f"{one['rounds']:.4g}", **links}
            lines.append({"network": titled(row), "phase": _NAMES.get(phase, phase), **cells})
    return markdown(lines)


def party_table(rows: list[Row]) -> str:
    """Return the table of what does not depend on the phase in Markdown."""
    return markdown(
        [
            {
                "network": titled(row),
                "n, log q, bits of t": f"{row['n']}, {row['log_q']}, {row['t_bits']}",
                "first connection s": f"{row['connections'][0]['seconds']:.2f}",
                "another client's s": f"{median(each['seconds'] for each in row['connections'][1:]):.2f}",
                "keys MB": f"{row['connections'][0]['bytes'] / 1e6:.1f}",
                "server's memory GB": f"{row['server_bytes'] / 1e9:.2f}",
            }
            for row in rows
        ]
    )


def block_table(rows: list[Row]) -> str:
    """Return the table of block sizes in Markdown, each with its gain over the smallest one of its network."""
    lines, first = list[dict[str, str]](), dict[str, float]()
    for row in rows:
        found = figures(row)
        ahead, online = (found[phase] for phase in _SINGLE)
        seconds = ahead["seconds"] + online["seconds"]
        least = first.setdefault(row["network"], seconds)
        cells = {"preparation s": f"{ahead['seconds']:.2f}", "online s": f"{online['seconds']:.3f}"}
        cells |= {"both s": f"{seconds:.2f}", "gain": f"{least / seconds:.2f}"}
        cells |= {f"{name} MB": f"{found[name]['bytes'] / 1e6:.1f}" for name in _SINGLE}
        memory = f"{row['server_bytes'] / 1e9:.2f}"
        lines.append({"network": row["title"], "b": str(row["block_size"]), **cells, "server's memory GB": memory})
    return markdown(lines)


def titled(row: Row) -> str:
    """Return what a row is called."""
    return f"{row['title']}, b = {row['block_size']}" if row["block_size"] else row["title"]


def caption(rows: list[Row]) -> str:
    """Return a sentence on how the rows were measured."""
    turns, loads, cores = (_span({round(row[name], 1) for row in rows}) for name in ("count", "load", "cores"))
    return (
        f"Medians of {turns} turns after one that warms up; processor cores: {cores}; load average when a row ended: "
        f"{loads}. Over LAN and WAN: these seconds, and what bytes and rounds add. The named networks have random "
        "weights. Every value of an image of each kind was right."
    )


def _span(values: set[float]) -> str:
    least, most = min(values), max(values)
    return f"{least:g}" if least == most else f"{least:g} to {most:g}"


def report(out: Path, page: Path | None) -> None:
    """Write the tables and the picture of all rows of a folder, and onto a page between its marks."""
    rows = [json.loads(path.read_text()) for path in out.glob("*.json")]
    rows = [row | {"count": len(row["turns"])} for row in rows if row.get("turns")]
    wrong = [titled(row) for row in rows if row["wrong"]]
    assert not wrong, wrong
    rows.sort(key=lambda row: ([*NETWORKS, row["network"]].index(row["network"]), row["block_size"]))
    several = [row for row in rows if sum(row["network"] == each["network"] for each in rows) > 1]
    shown = [row for row in rows if row["block_size"] in {0, _SHOWN} or row not in several]
    parts = [phase_table(shown), party_table(shown), *([block_table(several)] if several else []), caption(rows) + "\n"]
    picture = f"{page.stem}_blocks.png" if page else "block_sizes.png"
    if several:
        where = page.parent if page else out
        plots.block_size_seconds(where / picture, [row | {"phases": figures(row)} for row in several])
        parts.append(f"![Seconds over block sizes]({picture})\n")
    text = "\n".join(parts)
    write_text(out / "prepared.md", text)
    if page:
        before, rest = page.read_text().split(BEGIN)
        write_text(page, f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")
    print(text, end="")


def main() -> None:
    """Measure what is missing, and write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=[], choices=NETWORKS, help="with random weights")
    parser.add_argument("--blocks", type=int, nargs="+", default=[8], help="block sizes of the networks")
    parser.add_argument("--programs", nargs="+", default=[], metavar="NAME=FOLDER", help="of export.py")
    parser.add_argument("--profile", default="calibrate", help="of the networks' plans; a file saves measuring it")
    parser.add_argument("--engine", default="kernel")
    parser.add_argument("--turns", type=int, default=10, help="after one that warms up")
    parser.add_argument("--pinned", action="store_true", help="each party on a core, with one thread")
    parser.add_argument("--out", type=Path, default=Path("outputs/prepared"))
    parser.add_argument("--page", type=Path, help="Markdown whose tables are replaced, such as benchmarks/measured.md")
    given = parser.parse_args()
    keep_freed_memory()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.networks:
        for b in given.blocks:
            kept = given.out / f"{name}-b{b}.json"
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:  # PyTorch stays there
                pool.submit(program_of, name, b, given.out / "programs" / kept.stem, given.profile).result()
            row = {"network": name, "title": NETWORKS[name].title, "block_size": b}
            row = json.loads(kept.read_text()) if kept.is_file() else row
            measured(kept, row, given.out / "programs" / kept.stem, given)
    for name, folder in (text.split("=", 1) for text in given.programs):
        kept = given.out / f"{name}.json"
        row = json.loads(kept.read_text()) if kept.is_file() else {"network": name, "title": name, "block_size": 0}
        measured(kept, row, Path(folder), given)
    report(given.out, given.page)


if __name__ == "__main__":
    main()
