"""Replicas behind nginx that share a Redis: how much faster two are than one, and what faults leave behind.

python benchmarks/replicas.py throughput outputs/export/program      one replica on a core, two on a core each, in turns
python benchmarks/replicas.py faults outputs/export/program          one is killed every 20 s, for 3 minutes

All of it runs on loopback, as deploy/ has it: TLS, tokens, nginx.conf, a Redis that writes before it answers. It needs
nginx and redis-server, or valkey-server, and the extra redis. The exit status is 1 where a check fails.

throughput: the cores of the replicas are theirs alone where there are two more for clients, nginx and Redis. On a
smaller machine everything of a measurement shares the cores of its replicas: two cores do the work of two replicas and
their clients, one core that of one. Processor seconds an image say where the time goes.
"""

import argparse
import hashlib
import json
import os
import re
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.load.clients import LoadTask, Sample, load
from privcirnet.artifact.records import write_json
from privcirnet.cli.console import progress_bar, show_rows
from privcirnet.errors import RuleError
from privcirnet.service.certificates import make_trial

ROOT = Path(__file__).parents[1]
_DOWN_S = 2.0
"""Seconds for which a killed replica is away."""
_READY_S = 300.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Cluster:
    """Redis, nginx and replicas, each a process of its own.

    Args:
        folder: of all that they write.
        cores: one for each replica.
        others: of nginx and Redis.
        clients: of all replicas; nginx spreads them by chance, so each replica has room for all of them.
    """

    def __init__(self, given: argparse.Namespace, folder: Path, cores: Sequence[int], others: set[int], clients: int):
        self.given, self.folder, self.cores, self.clients = given, folder, cores, clients
        self.ports = [_free_port() for _ in range(len(cores) + 2)]
        self.url, self.address = f"redis://127.0.0.1:{self.ports[-1]}/0", ("127.0.0.1", self.ports[-2])
        self.server, self.client = _certificates(folder)
        self.services = list[subprocess.Popen[bytes]]()
        self.replicas = list[subprocess.Popen[bytes]]()
        self.others = others

    def start(self) -> None:
        """Start everything and wait until it listens."""
        self.services.append(_started(self._redis(), self.others))
        _wait(self.ports[-1])
        self.replicas += [self._replica(number) for number in range(len(self.cores))]
        for port in self.ports[: len(self.cores)]:
            _wait(port)
        self.services.append(_started(self._nginx(), self.others))
        _wait(self.ports[-2])

    def _redis(self) -> list[str]:
        (self.folder / "redis").mkdir()
        given = ["--bind", "127.0.0.1", "--dir", str(self.folder / "redis"), "--appendonly", "yes"]
        binary = _binary("valkey-server", "redis-server")
        return [binary, "--port", str(self.ports[-1]), *given, "--appendfsync", "always", "--save", ""]

    def _nginx(self) -> list[str]:
        folder = self.folder / "nginx"
        shutil.copytree(self.server, folder / "tls")
        shutil.copy(self.client / "ca.crt", folder / "tls" / "replicas.crt")
        text = (ROOT / "deploy" / "nginx.conf").read_text()
        text = re.sub(r"listen 5050\b", f"listen 127.0.0.1:{self.ports[-2]}", text)
        (folder / "nginx.conf").write_text(text)
        lines = [f"server 127.0.0.1:{port} max_fails=1 fail_timeout=5s;\n" for port in self.ports[: len(self.cores)]]
        (folder / "replicas.conf").write_text("".join(lines))
        return [_binary("nginx"), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", "daemon off;"]

    def _replica(self, number: int) -> subprocess.Popen[bytes]:
        settings = [f"program={self.given.program}", f"port={self.ports[number]}", f"tls={self.server}"]
        settings += [f"state={self.url}", f"engine={self.given.engine}"]
        settings += [f"sessions={4 * self.clients}", f"quota.sessions={4 * self.clients}", "threads=1"]
        settings += ["connections=256", "quota.prepared=1000", "quota.keys=100", f"root={self.folder}"]
        return _started([sys.executable, str(ROOT / "serve.py"), *settings], {self.cores[number]})

    def kill(self, number: int) -> None:
        """End a replica in the middle of whatever it does, and start it again a little later."""
        self.replicas[number].kill()
        self.replicas[number].wait()
        time.sleep(_DOWN_S)
        self.replicas[number] = self._replica(number)

    def processor_seconds(self) -> dict[str, float]:
        """Return what the processes have taken so far."""
        redis, nginx = self.services
        children = Path(f"/proc/{nginx.pid}/task/{nginx.pid}/children").read_text().split()
        return {
            "replicas": sum(_seconds_of(one.pid) for one in self.replicas),
            "nginx": sum(_seconds_of(int(child)) for child in children),
            "redis": _seconds_of(redis.pid),
        }

    def stop(self) -> None:
        """Let the replicas end as SIGTERM asks them to."""
        for replica in self.replicas:
            replica.send_signal(signal.SIGTERM)
        for replica in self.replicas:
            replica.wait(60)

    def close(self) -> None:
        """End all processes."""
        for process in (*self.replicas, *reversed(self.services)):
            if process.poll() is None:
                process.terminate()
        for process in (*self.replicas, *self.services):
            process.wait(60)


@contextmanager
def clustered(
    given: argparse.Namespace, cores: Sequence[int], others: set[int], clients: int
) -> Iterator[tuple[Cluster, LoadTask]]:
    """Yield a cluster in a temporary folder, and what clients ask of it."""
    with tempfile.TemporaryDirectory() as name:
        cluster = Cluster(given, Path(name), cores, others, clients)
        try:
            cluster.start()
            place = cluster.address, cluster.client, "", given.engine, given.seconds, given.program
            yield cluster, LoadTask(*place, retries=given.retries, prepare=given.prepare)
        finally:
            cluster.close()


def throughput(given: argparse.Namespace) -> bool:
    """Measure one and two replicas in turns; whether two are 1.8 times as fast."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        raise RuleError(
            "two replicas must have a core each", got=f"{len(available)} core", remedy="use a larger machine"
        )
    apart = len(available) >= 4
    found: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    for turn in range(given.turns):
        for count in (1, 2) if turn % 2 == 0 else (2, 1):
            cores = available[:count]
            others = set(available[2:]) if apart else set(cores)
            found[count].append(_measured(given, cores, others))
    rates = {count: median(one["images_per_second"] for one in each) for count, each in found.items()}
    rows = [{"replicas": str(count), "": "", **_cells(found[count])} for count in found]
    show_rows("clients on cores of their own" if apart else "clients on the replicas' cores", rows)
    facts = {"program": str(given.program), "apart": apart, "measured": found, "ratio": rates[2] / rates[1]}
    write_json(given.out / "throughput.json", facts)
    print(f"two replicas are {facts['ratio']:.2f} times as fast as one; 1.8 is asked for")
    return facts["ratio"] >= 1.8


def _measured(given: argparse.Namespace, cores: Sequence[int], others: set[int]) -> dict[str, float]:
    """Images a second of the clients, and processor seconds an image of everybody."""
    before, samples = os.sched_getaffinity(0), list[Sample]()
    clients = given.clients * len(cores)
    with clustered(given, cores, others, clients) as (cluster, task):
        os.sched_setaffinity(0, others)  # which the clients inherit
        try:
            spent, own = cluster.processor_seconds(), resource.getrusage(resource.RUSAGE_CHILDREN)
            load(task, clients, "", samples.append)
            now, after = cluster.processor_seconds(), resource.getrusage(resource.RUSAGE_CHILDREN)
        finally:
            os.sched_setaffinity(0, before)
    answers = [sample for sample in samples if not sample.error]
    first, last = ({one.client: one.ended for one in some} for some in (reversed(answers), answers))
    warm, end = max(first.values()), min(last.values())  # all of them ask
    seconds = after.ru_utime + after.ru_stime - own.ru_utime - own.ru_stime
    each = {name: (now[name] - spent[name]) / max(len(answers), 1) for name in now}
    each["clients"] = seconds / max(len(answers), 1)
    rate = sum(warm < one.ended <= end for one in answers) / max(end - warm, 1e-9)
    return {"images_per_second": rate, "errors": len(samples) - len(answers), **each}


def _cells(each: Sequence[dict[str, float]]) -> dict[str, str]:
    """Medians of turns, in words."""
    found = {name: median(one[name] for one in each) for name in each[0]}
    low, high = (f(one["images_per_second"] for one in each) for f in (min, max))
    cells = {"images a second": f"{found['images_per_second']:.2f} ({low:.2f} to {high:.2f})"}
    return cells | {
        f"{name}, CPU s an image": f"{found[name]:.4f}" for name in ("replicas", "clients", "nginx", "redis")
    }


def faults(given: argparse.Namespace) -> bool:
    """Kill one replica after the other while clients ask; whether everything holds."""
    available = sorted(os.sched_getaffinity(0))
    cores, samples, ended = [available[0], available[-1]], list[Sample](), threading.Event()
    kills = 0
    with clustered(given, cores, set(available), given.clients) as (cluster, task):

        def killer() -> None:
            nonlocal kills
            while not ended.wait(given.every - (_DOWN_S if kills else 0)):
                cluster.kill(kills % len(cores))
                kills += 1

        thread = threading.Thread(target=killer, daemon=True)
        with progress_bar("Faults", 0) as advance:
            thread.start()
            try:
                seen = load(task, given.clients, "", lambda sample: (samples.append(sample), advance())[1])
            finally:
                ended.set()
                thread.join()
        _wait_all(cluster)
        cluster.stop()
        counted, lines, torn = _counted(cluster.url), *_audit(cluster.folder / "audit")
    checks = _checks(given, seen, samples, kills, counted, lines)
    facts = {"program": str(given.program), "kills": kills, "torn_lines": torn, "counted": counted, "clients": seen}
    write_json(given.out / "faults.json", facts | {"checks": {name: held for name, held, _ in checks}})
    show_rows(
        f"{given.clients} clients, {given.seconds:g} s, {kills} kills",
        [{"check": name, "holds": "yes" if held else "NO", "found": words} for name, held, words in checks],
    )
    return all(held for _, held, _ in checks)


def _checks(
    given: argparse.Namespace,
    seen: dict[str, Any],
    samples: Sequence[Sample],
    kills: int,
    counted: int,
    lines: Sequence[dict[str, Any]],
) -> list[tuple[str, bool, str]]:
    """Return what must hold: (what, whether, in words)."""
    answers = [sample for sample in samples if not sample.error]
    wrong = [one for one in answers if one.off is None or one.off > given.tolerance]
    begun = [line for line in lines if line["event"] == "image begun"]
    ahead = sum(line["count"] for line in lines if line["event"] == "preparation begun")
    audited = sum(not line.get("prepared") for line in begun) + ahead
    serials = Counter(line["serial"] for line in begun if "serial" in line)
    twice = [serial for serial, count in serials.items() if count > 1]
    numbers = sorted(line["number"] for line in lines if line.get("number") is not None)
    missing = (numbers[-1] - numbers[0] + 1 - len(set(numbers))) if numbers else 0
    most = kills * given.clients
    refusals = ", ".join(f"{count} x {rule}" for rule, count in seen["errors"].items()) or "none"
    largest = max((one.off or 0.0 for one in answers), default=0.0)
    return [
        ("there were answers and kills", bool(answers) and kills > 0, f"{len(answers)} answers, {kills} kills"),
        (
            "each is the integer network's",
            not wrong,
            f"{len(wrong)} are not; off by {largest:.1%} of the range at most",
        ),
        ("else a refusal that says why", not seen["crashed"], f"{refusals}; {seen['crashed']} clients crashed"),
        (
            "images counted = images begun",
            0 <= counted - audited <= most,
            f"{counted} in Redis, {audited} in the audit logs; {most} at most may be counted and not written at kills",
        ),
        ("no more answers than begun", len(answers) <= len(begun), f"{len(begun)} begun"),
        (
            "no serial twice",
            not twice and (bool(serials) or not given.prepare),
            f"{len(serials)} serials, {len(twice)} twice",
        ),
        (
            "no number twice, none missing",
            len(set(numbers)) == len(numbers) and missing <= most,
            f"{len(numbers)} numbers, {missing} missing of lines that a kill caught",
        ),
    ]


def _counted(url: str) -> int:
    """Images of all clients that Redis has counted."""
    import redis

    with redis.Redis.from_url(url) as link:
        return sum(int(n) for key in link.scan_iter("*:images:*") for n in link.hvals(key))


def _audit(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """The lines of all replicas' audit logs, and how many a kill tore."""
    lines, torn = list[dict[str, Any]](), 0
    for path in sorted(folder.glob("audit-*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                torn += 1
    return lines, torn


def _certificates(folder: Path) -> tuple[Path, Path]:
    """Folders of a server that takes tokens, and of its client."""
    server, client = make_trial(folder / "tls", ["127.0.0.1", "localhost"])
    token = secrets.token_hex(32)
    (server / "clients.crt").unlink()
    for name in ("client.crt", "client.key"):
        (client / name).unlink()
    for path, text in (
        (server / "tokens.json", json.dumps({"load": _sha256(token)})),
        (client / "client.token", token),
    ):
        path.touch(0o600)
        path.write_text(text)
    return server, client


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _binary(*names: str) -> str:
    found = next((path for name in names if (path := shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin"))), None)
    if found is None:
        raise RuleError(
            "the benchmark needs other programs", got=f"no {' or '.join(names)}", remedy="install one of them"
        )
    return found


def _started(command: Sequence[str], cores: set[int]) -> subprocess.Popen[bytes]:
    """A process on some cores."""
    pinned = ["taskset", "-c", ",".join(map(str, sorted(cores))), *command]
    return subprocess.Popen(pinned, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)


def _wait_all(cluster: Cluster) -> None:
    for port in cluster.ports:
        _wait(port)


def _wait(port: int) -> None:
    """Wait until somebody listens."""
    end = time.monotonic() + _READY_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > end:
                rule, remedy = "a process must listen in time", "start it by hand to see what it says"
                raise RuleError(rule, got=f"port {port}, {_READY_S:g} s", remedy=remedy) from None
            time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _seconds_of(process: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def main() -> None:
    """Measure, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("throughput", "faults"))
    parser.add_argument("program", type=Path, help="folder of export.py")
    parser.add_argument("--seconds", type=float, help="of each measurement (60), or of all faults (180)")
    parser.add_argument("--clients", type=int, help="of each replica (4), or of all faults (4)")
    parser.add_argument("--turns", type=int, default=3, help="of one and two replicas")
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two kills")
    parser.add_argument("--prepare", type=int, help="inferences that a client keeps prepared (0, of faults 2)")
    parser.add_argument("--retries", type=int, default=10, help="of a client, with each image")
    parser.add_argument("--tolerance", type=float, default=0.1, help="of logits, as a part of their range: truncations")
    parser.add_argument("--engine", default="kernel")
    parser.add_argument("--out", type=Path, default=Path("outputs/replicas"))
    given = parser.parse_args()
    usual = {"throughput": (60.0, 4, 0), "faults": (180.0, 4, 2)}[given.what]
    for name, value in zip(("seconds", "clients", "prepare"), usual, strict=True):
        setattr(given, name, value if getattr(given, name) is None else getattr(given, name))
    given.program = given.program.absolute()
    given.out.mkdir(parents=True, exist_ok=True)
    sys.exit(0 if {"throughput": throughput, "faults": faults}[given.what](given) else 1)


if __name__ == "__main__":
    main()
