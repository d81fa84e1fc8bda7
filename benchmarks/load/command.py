"""Put load on a running server. `python -m benchmarks.load --help`."""

from pathlib import Path
from typing import Any

from benchmarks.load.clients import LoadTask, Sample, load
from benchmarks.load.config import LoadConfig
from privcirnet.artifact.records import write_json
from privcirnet.cli.console import progress_bar, show
from privcirnet.cli.settings import script
from privcirnet.service.address import parse_address


@script(LoadConfig, "load")
def main(config: LoadConfig) -> None:
    """Have clients ask for a while, and show latencies, throughput, errors and memory."""
    tls, program = (Path(folder) if folder else None for folder in (config.tls, config.program))
    address, more = parse_address(config.server), (config.retries, config.prepare)
    task = LoadTask(address, tls, config.served, config.engine, config.seconds, program, config.mode, *more)
    with progress_bar(f"Load ({config.clients} clients)", 0) as advance:

        def step(sample: Sample) -> None:
            advance(sample.error or f"{sample.seconds:.2f} s")

        found = load(task, config.clients, config.metrics, step)
    path = Path(config.out) / "summary.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"stage": "load", "clients": config.clients, **found})
    times, growth = found["seconds"], found["server_growth"]
    show(
        f"load: {config.clients} clients for {config.seconds:g} s on {config.server}",
        {
            "images": f"{found['images']}, {found['images_per_second']:.2f} a second; "
            f"of each client {', '.join(map(str, found['images_of_clients'].values()))}",
            "latency": ", ".join(f"{name} {value:.3f} s" for name, value in times.items()),
            "errors": ", ".join(f"{count} x {rule}" for rule, count in found["errors"].items()) or "none",
            **({"classes": _compared(found)} if program else {}),
            **(
                {"memory": f"{found['server_bytes'][-1] / 1e6:.0f} MB, {growth:+.1%} after the first fifth"}
                if growth is not None
                else {}
            ),
            "saved": path,
        },
    )


def _compared(found: dict[str, Any]) -> str:
    """Truncation may be off by a unit, so logits that lie close together may change places."""
    count, all_, off = found["same_class"], found["compared"], found["largest_difference"] or 0.0
    return f"{count} of {all_} as the integer network; logits differ by at most {off:.1%} of their range"
