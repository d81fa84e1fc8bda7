"""SPU's Cheetah (two parties, interactive) on the tutorial network or on ResNet-18, in two processes over loopback TCP.

python benchmarks/peers/spu_cheetah.py --network outputs/peers/network.npz [--activation relu]
python benchmarks/peers/spu_cheetah.py --resnet18 [--images 1]
python benchmarks/peers/spu_cheetah.py --relus 65536 [--protocol SEMI2K]

The client's images and the server's weights stay with their owners (``experimental_enable_colocated_optimization``).
SPU computes in fixed point in Z_2^64 with 18 fractional bits and evaluates ReLU exactly. ResNet-18 (32 x 32 images, 100
classes, batch norms folded) has random weights: neither seconds nor bytes depend on them. With SEMI2K the first party
deals the randomness that the two multiply with, and must be trusted. Needs Python 3.11.
"""

import argparse
import multiprocessing
import os
import re
import socket
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from peer import HERE, Result, Timed, add_out, inside, peak_bytes, write

PACKAGES = ["spu==0.9.5", "numpy<2"]
CLIENT, SERVER = 0, 1
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))


def conv(x, w, stride, padding):
    """Return a convolution, of x as NHWC and w as HWIO, the order that suits SPU."""
    import jax

    return jax.lax.conv_general_dilated(x, w, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def tutorial(activate):
    """Return the network as a function: images (N, 28, 28, 1) and weights to logits (N, 10)."""

    def run(x, w):
        x = activate(conv(x, w["conv.weight"], 3, "VALID") + w["conv.bias"])
        x = activate(x.reshape(x.shape[0], -1) @ w["fc1.weight"] + w["fc1.bias"])
        return x @ w["fc2.weight"] + w["fc2.bias"]

    return run


def resnet18(activate):
    """Return the network as a function: images (N, 32, 32, 3) and weights to logits (N, 100)."""
    import jax.numpy as jnp

    def run(x, w):
        x = activate(conv(x, w["stem"], 1, "SAME") + w["stem.bias"])
        for stage, (_, first) in enumerate(STAGES):
            for block, stride in enumerate((first, 1)):
                name, skip = f"{stage}.{block}", x
                y = activate(conv(x, w[f"{name}.a"], stride, ((1, 1), (1, 1))) + w[f"{name}.a.bias"])
                y = conv(y, w[f"{name}.b"], 1, ((1, 1), (1, 1))) + w[f"{name}.b.bias"]
                if f"{name}.skip" in w:
                    skip = conv(x, w[f"{name}.skip"], stride, "VALID")
                x = activate(y + skip)
        return jnp.mean(x, axis=(1, 2)) @ w["fc"] + w["fc.bias"]

    return run


def resnet18_weights():
    """Return random weights of the usual magnitude."""
    import numpy as np

    random, channels, found = np.random.default_rng(0), 64, {}

    def add(name, kernel, inner, outer, bias=True):
        found[name] = random.normal(0, (2 / (kernel * kernel * inner)) ** 0.5, (kernel, kernel, inner, outer))
        if bias:
            found[f"{name}.bias"] = np.zeros(outer)

    add("stem", 3, 3, 64)
    for stage, (width, first) in enumerate(STAGES):
        for block, stride in enumerate((first, 1)):
            add(f"{stage}.{block}.a", 3, channels, width)
            add(f"{stage}.{block}.b", 3, width, width)
            if stride > 1 or channels != width:
                add(f"{stage}.{block}.skip", 1, channels, width, bias=False)
            channels = width
    found |= {"fc": random.normal(0, 0.04, (512, 100)), "fc.bias": np.zeros(100)}
    return {name: value.astype(np.float32) for name, value in found.items()}


def load(path: Path):
    """Return images as NHWC in [0, 1), labels, float logits, and weights in JAX's order."""
    import numpy as np

    with np.load(path) as arrays:
        known = dict(arrays)
    w = {name: known[name].astype(np.float32) for name in known if "." in name}
    w["conv.weight"] = w["conv.weight"].transpose(2, 3, 1, 0)
    # Maps are flattened as (H, W, C) here.
    w["fc1.weight"] = w["fc1.weight"].reshape(64, 4, 8, 8).transpose(2, 3, 1, 0).reshape(256, 64)
    w["fc2.weight"] = w["fc2.weight"].T
    return known["images"].transpose(0, 2, 3, 1).astype(np.float32) / 256, known["labels"], known["logits"], w


def configuration(packed: bool, protocol: str, profiled: bool = False):
    """Return a protocol's configuration as measured."""
    from spu import libspu

    config = libspu.RuntimeConfig(protocol=getattr(libspu.ProtocolKind, protocol), field=libspu.FieldType.FM64)
    config.experimental_enable_colocated_optimization = True
    config.cheetah_2pc_config.disable_matmul_pack = not packed
    config.enable_pphlo_profile = profiled
    return config


def party(rank: int, ports, program, values, configured, answer: Connection) -> None:
    """Run the program on every image, in one process, with SPU's own profile if there is a file for it."""
    from spu import api, libspu

    (code, names, outputs), (images, weights), (packed, protocol, log) = program, values, configured
    executable = libspu.Executable(name="network", input_names=names, output_names=outputs, code=code)
    desc = libspu.link.Desc()
    for index, port in enumerate(ports):
        desc.add_party(f"party{index}", f"127.0.0.1:{port}")
    desc.recv_timeout_ms = 600_000
    if log:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
        os.dup2(2, 1)
    link, config = libspu.link.create_brpc(desc, rank), configuration(packed, protocol, profiled=bool(log))
    io, runtime = api.Io(2, config), api.Runtime(link, config)
    secret = libspu.Visibility.VIS_SECRET
    for name, value in zip(names[1:], weights, strict=True):
        runtime.set_var(name, io.make_shares(value, secret, SERVER)[rank])
    for image in images:
        link.barrier()
        started, worked = time.perf_counter(), time.process_time()
        runtime.set_var(names[0], io.make_shares(image[None], secret, CLIENT)[rank])
        runtime.run(executable)
        took = time.perf_counter() - started, time.process_time() - worked
        answer.send((*took, runtime.get_var(outputs[0]), peak_bytes()))
    link.stop_link()


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on right now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def compiled(function, image, weights):
    """Return the program as SPU's compiler makes it: (code, input names, output names)."""
    import jax
    from spu import libspu
    from spu.utils import frontend

    leaves, names = jax.tree_util.tree_leaves((image[None], weights)), ["x"]
    names += [f"w{index}" for index in range(len(leaves) - 1)]
    made, _ = frontend.compile(
        frontend.Kind.JAX,
        function,
        (image[None], weights),
        {},
        names,
        [libspu.Visibility.VIS_SECRET] * len(leaves),
        lambda flat: [f"out{index}" for index in range(len(flat))],
        static_argnums=(),
        copts=libspu.CompilerOptions(),
    )
    return (made.code, list(made.input_names), list(made.output_names)), leaves[1:]


def measure(program, images, leaves, configured, logs=None):
    """Return seconds, processor seconds, logits and peaks of two fresh processes; write profiles to ``logs``."""
    import numpy as np
    from spu import api

    context, ports = multiprocessing.get_context("spawn"), free_ports(2)
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    processes = [
        context.Process(
            target=party,
            args=(
                rank,
                ports,
                program,
                (images, leaves),
                (*configured, str(logs / str(rank)) if logs else ""),
                pipe[1],
            ),
        )
        for rank, pipe in enumerate(pipes)
    ]
    for process, pipe in zip(processes, pipes, strict=True):
        process.start()
        pipe[1].close()
    seconds, cpu, logits, peaks = [], [], [], {}
    for _ in images:
        found = [pipe[0].recv() for pipe in pipes]
        seconds.append(max(one[0] for one in found))
        cpu.append(sum(one[1] for one in found))
        logits.append(api.Io(2, configuration(*configured)).reconstruct([one[2] for one in found])[0])
        peaks = {"client": found[CLIENT][3], "server": found[SERVER][3]}
    for process in processes:
        process.join()
    return seconds, cpu, np.stack(logits), peaks


def sent(logs: Path) -> tuple[int, int]:
    """Return the bytes of both parties: (the first run, set-up included; the last run)."""
    found = [re.findall(r"total send bytes (\d+)", (logs / str(rank)).read_text()) for rank in (CLIENT, SERVER)]
    return sum(int(one[0]) for one in found), sum(int(one[-1]) for one in found)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", type=Path, default=Path("outputs/peers/network.npz"), help="of network.py")
    parser.add_argument("--resnet18", action="store_true", help="ResNet-18 with random weights instead")
    parser.add_argument("--relus", type=int, default=0, help="so many ReLUs alone instead")
    parser.add_argument("--protocol", default="CHEETAH", choices=("CHEETAH", "SEMI2K"))
    parser.add_argument("--activation", default="square", choices=("square", "relu"))
    parser.add_argument("--pack", action="store_true", help="pack replies of matrix products: fewer bytes, more work")
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--venv", type=Path, default=HERE / ".venvs" / "spu", help="made if it is not there")
    parser.add_argument("--python", default="python3.11", help="interpreter that SPU's package supports")
    add_out(parser, "spu")
    given = parser.parse_args()
    inside(PACKAGES, given.venv, given.python)
    import jax
    import numpy as np

    configured = packed, _ = given.pack or given.resnet18, given.protocol
    activate = jax.nn.relu if given.activation == "relu" or given.relus else lambda x: x * x
    if given.relus:
        images = np.random.default_rng(1).normal(size=(given.images, given.relus)).astype(np.float32)
        weights, labels = {"w": images[0] / 2}, np.zeros(given.images)  # of a party's own values it is local
        function = lambda x, w: activate(x + w["w"])  # noqa: E731
    elif given.resnet18:
        images = np.random.default_rng(1).random((given.images, 32, 32, 3), dtype=np.float32)
        weights = resnet18_weights()
        function, labels = resnet18(activate), np.zeros(given.images)
    else:
        images, labels, _, weights = load(given.network)
        images, labels, function = images[: given.images], labels[: given.images], tutorial(activate)
    clear = np.asarray(function(images, weights))
    program, leaves = compiled(function, images[0], weights)
    with tempfile.TemporaryDirectory() as logs:
        if given.resnet18:  # too long for a second run, and a profile is nothing beside it
            seconds, cpu, logits, peaks = measure(program, images, leaves, configured, Path(logs))
        else:
            seconds, cpu, logits, peaks = measure(program, images, leaves, configured)
            measure(program, images[:2], leaves, configured, Path(logs))
        once, moved = sent(Path(logs))
    found = Timed(logits, seconds, cpu).facts(clear, labels)
    write(
        given.out,
        Result(
            network="relus" if given.relus else "resnet18" if given.resnet18 else "tutorial",
            peer="SPU (Cheetah)" if given.protocol == "CHEETAH" else "SPU (Semi2k, a dealer)",
            version="0.9.5",
            activation="ReLU" if given.relus else {"relu": "ReLU", "square": "square"}[given.activation],
            interactive=True,
            parameters="Z_2^64, 18 fractional bits" + ("" if given.relus else ", packed" if packed else ", not packed"),
            **(found | {"seconds_first": found["seconds_first"] if given.images > 1 else None}),
            bytes_image=moved,
            bytes_once=once - moved if given.images > 1 else None,
            peak_bytes=peaks,
        ),
    )


if __name__ == "__main__":
    main()
