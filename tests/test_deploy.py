"""The container file and the systemd unit: their steps, run in an empty directory that takes the place of the root.

What they install from elsewhere (a base image, dependencies) is borrowed from this environment, as in the wheel's test.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from privcirnet.config import ServeConfig
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import run
from privcirnet.service.access import ClientAccess
from privcirnet.service.address import parse_address
from privcirnet.service.certificates import CLIENT, make_trial
from privcirnet.service.client import ServiceClient
from privcirnet.service.refusals import Refused
from privcirnet.service.server import ROOM
from tests.conftest import ROOT
from tests.he.networks import network, random_image
from tests.service.running import serving

DEPLOY = ROOT / "deploy"
TRIAL = ["engine=cleartext", "warm_up=false", "port=0", "host=127.0.0.1", "metrics=127.0.0.1:0"]
"""What a test changes of the settings: nothing is compiled, no port is taken."""


def instructions(name: str) -> list[tuple[str, str]]:
    """(instruction, arguments) of each line of a container file."""
    lines = (DEPLOY / name).read_text().replace("\\\n", " ").splitlines()
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines if line and not line.startswith("#")]


def unit(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", (DEPLOY / "privcirnet.service").read_text(), flags=re.MULTILINE)


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """An empty directory after the container file's COPY and RUN steps; bin/ is that of its Python."""
    root = tmp_path_factory.mktemp("root")
    venv.create(root, symlinks=True, with_pip=False)
    library = next(root.glob("lib/python*/site-packages"))
    (library / "borrowed.pth").write_text("\n".join(p for p in sys.path if p.endswith("-packages")))
    for instruction, arguments in instructions("Containerfile"):
        if instruction == "COPY":
            source, target = arguments.split()
            shutil.copytree(
                ROOT / source, root / target[1:], ignore=shutil.ignore_patterns(".*", "outputs", "__pycache__")
            )
        elif instruction == "RUN":
            for step in arguments.split(" && "):
                perform(root, shlex.split(step))
    return root


def perform(root: Path, words: list[str]) -> None:
    """Run one step of the container file inside of the directory."""
    if words[0] == "useradd":
        (root / words[words.index("--home-dir") + 1][1:]).mkdir()
        return
    if words[0] == "install":
        (root / words[-1][1:]).mkdir(mode=0o700)
        return
    words = [str(root / word[1:]) if word.startswith("/") else word for word in words]
    if words[:2] == ["pip", "install"]:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(root / "bin" / "python")]
        words = [*pip, *words[1:], "--no-deps", "--no-index", "--no-build-isolation"]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def mount(root: Path, small_program: Path, *names: str) -> tuple[list[str], Path]:
    """Put a program and certificates where the settings want them: (settings that say where, the client's folder)."""
    program, tls, state = (root / name[1:] for name in names)
    shutil.copytree(small_program, program)
    server, client = make_trial(root / "trial", ["127.0.0.1"])
    shutil.copytree(server, tls)
    return [f"program={program}", f"tls={tls}", f"state={state}", f"prepared_claims={root / 'claims'}"], client


def serve_and_ask(root: Path, command: list[str], client: Path, site: Path) -> list[dict[str, object]]:
    """Start the server, ask it, shut the client out in its settings and make it reload, end it; return its log."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            lines = []
            while not (found := re.search(r"server=(\S+)", lines[-1] if lines else "")):
                lines.append(process.stdout.readline())
                assert lines[-1], "it ended"
            with ServiceClient(parse_address(found[1]), "cleartext", access=ClientAccess.of(client)) as remote:
                run(remote.client, remote, random_image(network()))
            site.write_text(site.read_text() + f"quotas: {{{CLIENT}: {{sessions: 0}}}}\n")
            process.send_signal(signal.SIGHUP)
            log = [json.loads(process.stdout.readline())]
            while log[-1]["event"] != "reloaded":
                log.append(json.loads(process.stdout.readline()))
            with pytest.raises(Refused, match="a client must have a quota of sessions: got 0"):
                ServiceClient(parse_address(found[1]), "cleartext", access=ClientAccess.of(client))
            process.send_signal(signal.SIGTERM)
            rest, _ = process.communicate(timeout=30)
        finally:
            process.kill()
        assert process.returncode == 0
    return [*log, *map(json.loads, rest.splitlines())]


@pytest.mark.slow
def test_the_containers_steps(installed, small_program):
    steps = dict(instructions("Containerfile"))
    entry = [word.replace("/etc/", f"{installed}/etc/") for word in json.loads(steps["ENTRYPOINT"])]
    settings, client = mount(installed, small_program, "/program", "/tls", "/state/clients")
    command = [str(installed / "bin" / entry[0]), *entry[1:], *settings, *TRIAL]
    log = serve_and_ask(installed, command, client, installed / "etc" / "privcirnet" / "site" / "container.yaml")
    assert [line["event"] for line in log][-1] == "stopped"
    assert {"session opened", "image"} <= {line["event"] for line in log}
    assert {path.name for path in (installed / "state" / "clients").iterdir()} >= {"audit.jsonl", "keys"}
    assert steps["USER"] != "root"


@pytest.mark.slow
def test_the_systemd_unit(installed, small_program, tmp_path):
    """Its commands, with the paths of the empty directory; systemd itself checks the file where it is installed."""
    (start,), (reload,), (stop,) = unit("ExecStart"), unit("ExecReload"), unit("KillSignal")
    assert ("-HUP" in reload, stop) == (True, "SIGTERM")
    words = [
        word.replace("/opt/privcirnet", str(installed)).replace("/etc/", f"{installed}/etc/") for word in start.split()
    ]
    settings, client = mount(tmp_path, small_program, "/program", "/tls", "/state")
    site = installed / "etc" / "privcirnet" / "site" / f"{words[-1].split('=')[1]}.yaml"
    assert serve_and_ask(tmp_path, [*words, *settings, *TRIAL], client, site)[-1]["event"] == "stopped"
    if shutil.which("systemd-analyze"):
        copy = tmp_path / "privcirnet.service"
        copy.write_text((DEPLOY / copy.name).read_text().replace("/opt/privcirnet", str(installed)))
        done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_settings_name_only_what_exists():
    from privcirnet.cli.settings import offers

    known = offers("serve", ServeConfig)
    named = [(path, r"^(\w+):") for path in (DEPLOY / "site").glob("*.yaml")]
    named += [(DEPLOY / name, r"^ +- ([a-z_.]+)=") for name in ("compose.yaml", "kubernetes.yaml")]
    for path, pattern in named:
        found = re.findall(pattern, path.read_text(), flags=re.MULTILINE)
        assert found
        for name in found:
            assert any(offer.startswith((f"{name}=", f"{name}.")) for offer in known), f"{path.name}: {name}"


def check_protected(state: str, given: list[str]) -> None:
    """Valkey speaks TLS alone and asks for a password, which the replicas give: a server takes nothing else."""
    options, parts = dict(zip(given[::2], given[1::2], strict=True)), urlsplit(state)
    assert (parts.scheme, str(parts.port), options["--port"]) == ("rediss", options["--tls-port"], "0")
    assert parts.password
    assert options["--requirepass"]
    assert parts.query == f"ssl_ca_certs={options['--tls-ca-cert-file']}"


def objects() -> dict[tuple[str, str], dict]:
    """What the Kubernetes manifest asks for, by kind and name."""
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def test_the_kubernetes_manifest():
    """Its objects are ones that Kubernetes knows, strictly; names that they give each other are there."""
    validate = pytest.importorskip("kubernetes_validate", reason="the test extra is not installed")
    made = objects()
    for one in made.values():
        validate.validate(one, "1.34", strict=True)
    pod = made["Deployment", "privcirnet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] > ServeConfig().grace_s
    assert container["readinessProbe"]["grpc"]["service"] == ROOM
    assert {volume["name"] for volume in pod["volumes"]} == {mount["name"] for mount in container["volumeMounts"]}
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    given = dict(word.split("=", 1) for word in container["args"])
    _, metrics = parse_address(yaml.safe_load((DEPLOY / "site" / "container.yaml").read_text())["metrics"])
    assert (ports["metrics"], ports["health"]) == (metrics, metrics + 1)
    probes = ("startupProbe", "livenessProbe", "readinessProbe")
    assert {container[probe]["grpc"]["port"] for probe in probes} == {metrics + 1}
    assert urlsplit(given["state"]).hostname == made["Service", "privcirnet-valkey"]["metadata"]["name"]
    (valkey,) = made["StatefulSet", "privcirnet-valkey"]["spec"]["template"]["spec"]["containers"]
    check_protected(given["state"], valkey["args"])
    claims = [
        volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume
    ]
    assert [name for name in claims if ("PersistentVolumeClaim", name) not in made] == ["privcirnet-program"]
    for kind, name in made:
        spec = made[kind, name]["spec"]
        if kind in ("Deployment", "StatefulSet"):
            for one in spec["template"]["spec"]["containers"]:
                assert one["securityContext"]["readOnlyRootFilesystem"]
                assert one["resources"]["limits"]["memory"]
            assert spec["template"]["metadata"]["labels"] == spec["selector"]["matchLabels"]


def test_the_compose_file():
    compose = pytest.importorskip("compose_spec", reason="the test extra is not installed")
    compose.PyCompose.from_yaml((DEPLOY / "compose.yaml").read_text()).validate()
    found = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = found["services"]
    replicas = [name for name in services if name.startswith("replica")]
    listed = re.findall(r"^server ([\w-]+):5050 ", found["configs"]["replicas"]["content"], flags=re.MULTILINE)
    assert listed == replicas == ["replica-1", "replica-2"]
    assert (DEPLOY / found["configs"]["nginx"]["file"]).is_file()
    assert all("healthcheck" in service and service["read_only"] for service in services.values())
    assert [name for name, service in services.items() if "ports" in service] == ["nginx"]
    (state,) = (word for word in services["replica-1"]["command"] if word.startswith("state="))
    check_protected(state.removeprefix("state="), services["valkey"]["command"][1:])
    assert int(services["replica-1"]["stop_grace_period"].removesuffix("s")) > ServeConfig().grace_s


def test_the_health_check_of_the_compose_file():
    """Its own program, against a server's port for probes."""
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["replica-1"]
    _, _, _, program = service["healthcheck"]["test"]
    with serving(Server(network(), "cleartext"), probes=True) as running:
        words = [sys.executable, "-c", program.replace("9091", str(running.probes))]
        assert subprocess.run(words, check=False).returncode == 0
    assert subprocess.run(words, capture_output=True, check=False).returncode != 0
