"""Mutated messages: everything that another party could send in place of an honest message, from a seed."""

import copy
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from privcirnet.he.layers.shape import Axis
from privcirnet.he.layers.spectral_layout import CyclicTiles
from privcirnet.he.ring import modular
from tests.conftest import WHOLE
from tests.he.wire_oracles import number, stream_of

HEADER, LENGTH = 8, 4


def due(counts: Mapping[str, int]) -> dict[str, int]:
    """The mutations to try of each kind: all of them in ``make test-all``, else an eighth."""
    return {kind: count if WHOLE else count // 8 for kind, count in counts.items()}


@dataclass(frozen=True)
class Residues:
    """A run of ``count`` packed residues in a message, all due to be under ``prime``; it begins with a byte's first bit."""

    start: int
    prime: int
    count: int

    @property
    def stop(self) -> int:
        return self.start + self.prime.bit_length() * self.count // 8

    def read(self, message: bytes) -> np.ndarray:
        stream = np.unpackbits(np.frombuffer(message[self.start : self.stop], np.uint8), bitorder="little")
        return number(stream.reshape(self.count, -1)).astype(np.uint64)

    def put(self, message: bytes, values: np.ndarray) -> bytes:
        packed = np.packbits(stream_of(values, self.prime.bit_length()), bitorder="little").tobytes()
        return message[: self.start] + packed + message[self.stop :]

    def are_legal(self, message: bytes) -> bool:
        return bool((self.read(message) < self.prime).all())


@dataclass(frozen=True)
class Honest:
    """An honest message: where its residues and its seeds are. All other bytes are fixed by the protocol.

    Attributes:
        content: the bytes.
        runs: residues.
        seeds: (start, stop) of bytes that may be anything.
        others: messages of other steps and sessions.
    """

    content: bytes
    runs: list[Residues]
    seeds: list[tuple[int, int]]
    others: list[bytes]

    def allows(self, message: bytes) -> bool:
        """The oracle: whether a message is one that the receiver has to process."""
        if len(message) != len(self.content):
            return False
        free = np.zeros(len(message), dtype=bool)
        for start, stop in [(run.start, run.stop) for run in self.runs] + self.seeds:
            free[start:stop] = True
        mine, due = (np.frombuffer(m, np.uint8)[~free] for m in (message, self.content))
        return bool((mine == due).all()) and all(run.are_legal(message) for run in self.runs)


def flip_bits(honest: Honest, random: Random) -> bytes:
    changed = bytearray(honest.content)
    for _ in range(random.choice((1, 1, 2, 8))):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def cut(honest: Honest, random: Random) -> bytes:
    length = len(honest.content)
    return honest.content[: random.choice((0, 1, 4, 7, 8, 9, 12, length - 1, random.randrange(length)))]


def lengthen(honest: Honest, random: Random) -> bytes:
    tail = random.choice((b"\0", random.randbytes(random.randrange(1, 99)), honest.content, bytes(1 << 20)))
    return honest.content + tail


def splice(honest: Honest, random: Random) -> bytes:
    other = random.choice([*honest.others, honest.content])
    place = random.randrange(len(honest.content))
    start = random.choice((min(place, len(other)), random.randrange(len(other) + 1)))
    return honest.content[:place] + other[start:]


def move_within(honest: Honest, random: Random) -> bytes:
    length = len(honest.content)
    start, stop = sorted(random.randrange(length + 1) for _ in range(2))
    piece, rest = honest.content[start:stop], honest.content[:start] + honest.content[stop:]
    place = random.randrange(len(rest) + 1)
    return rest[:place] + piece * random.choice((0, 1, 1, 2)) + rest[place:]


def header_field(honest: Honest, random: Random) -> bytes:
    start, size = random.choice(((0, 4), (4, 2), (6, 2)))
    return _put(honest.content, start, size, random.choice((0, 1, 2, 5, 256**size - 1, random.randrange(256**size))))


def part_length(honest: Honest, random: Random) -> bytes:
    parts = _part_starts(honest.content)
    if not parts:
        return header_field(honest, random)
    start, length = random.choice(parts)
    choices = (0, 1, length - 1, length + 1, 2 * length, 1 << 31, (1 << 32) - 1, random.randrange(1 << 32))
    return _put(honest.content, start, LENGTH, random.choice(choices) % (1 << 32))


def residue(honest: Honest, random: Random) -> bytes:
    """The last legal values and the first ones that are not, in one residue or a whole run."""
    if not honest.runs:
        return flip_bits(honest, random)
    run = random.choice(honest.runs)
    legal, largest = (0, 1, run.prime - 1), (1 << run.prime.bit_length()) - 1
    value = random.choice((*legal, run.prime, min(run.prime + random.randrange(1, 1 << 20), largest), largest))
    values = run.read(honest.content)
    if random.random() < 0.2:
        values[:] = value
    else:
        values[random.choice((0, run.count - 1, random.randrange(run.count)))] = value
    return run.put(honest.content, values)


def uniform_legal(honest: Honest, random: Random) -> bytes:
    """Every residue all zero, or drawn anew under its prime."""
    changed, zero = honest.content, random.random() < 0.3
    for run in honest.runs:
        values = [0 if zero else random.randrange(run.prime) for _ in range(run.count)]
        changed = run.put(changed, np.array(values, dtype=np.uint64))
    return changed


def swap_parts(honest: Honest, random: Random) -> bytes:
    """Parts in another order, one twice, one missing, all longer or shorter; the count put right or not."""
    parts = [honest.content[s + LENGTH : s + LENGTH + length] for s, length in _part_starts(honest.content)]
    kind = random.randrange(5)
    if kind == 0:
        random.shuffle(parts)
    elif kind == 4:
        parts = [part + bytes(random.randrange(1, 9)) for part in parts]
    elif kind == 1:
        parts = parts[1:]
    elif kind == 2:
        parts = parts + parts[:1]
    else:
        parts = [part[: len(part) // 2] for part in parts]
    count = len(parts).to_bytes(2, "little") if random.random() < 0.7 else honest.content[6:8]
    head = honest.content[:6] + count
    return head + b"".join(len(part).to_bytes(LENGTH, "little") + part for part in parts)


def replay(honest: Honest, random: Random) -> bytes:
    """Another step's or session's message, with its own header or with the one that is due."""
    other = random.choice(honest.others)
    return other if random.random() < 0.5 else honest.content[:HEADER] + other[HEADER:]


def noise(honest: Honest, random: Random) -> bytes:
    length = random.choice((len(honest.content), random.randrange(64), random.randrange(1 << 14)))
    return random.randbytes(length) if random.random() < 0.7 else random.choice((b"\0", b"\xff")) * length


MESSAGES: list[Callable[[Honest, Random], bytes]] = [
    *(flip_bits, cut, lengthen, splice, move_within, header_field, part_length),
    *(residue, residue, uniform_legal, swap_parts, replay, noise),
]


def message(honest: Honest, random: Random) -> bytes:
    """One mutated message."""
    return random.choice(MESSAGES)(honest, random)


def _put(content: bytes, start: int, size: int, value: int) -> bytes:
    return content[:start] + value.to_bytes(size, "little") + content[start + size :]


def _part_starts(content: bytes) -> list[tuple[int, int]]:
    """(place of the length field, length) of each part of an honest framed message; none if it is not framed."""
    starts: list[tuple[int, int]] = []
    place = HEADER
    while content[:4] == b"PCN3" and place < len(content):
        length = int.from_bytes(content[place : place + LENGTH], "little")
        starts.append((place, length))
        place += LENGTH + length
    return starts


NESTED = "lists in lists: "
"""Stands for lists in lists in a description, as deep as the number that follows says: deeper than Python can write."""


def deepened(text: str) -> str:
    return re.sub(f'"{NESTED}([0-9]+)"', lambda found: "[" * int(found[1]) + "]" * int(found[1]), text)


def odd_value(random: Random) -> Any:
    """Values of any type and size, as JSON can carry them (and NaN, which Python's JSON carries too)."""
    pool: list[Callable[[], Any]] = [
        lambda: random.choice((None, True, False, [], {}, "", "x", 1.5, float("nan"), float("inf"), -float("inf"))),
        lambda: random.choice((0, 1, -1, 2, 3, 7, 64, 127, 128, 129, 8192, 32768, 65535, 1 << 20, 1 << 24)),
        lambda: random.choice((1 << 31, 1 << 32, 1 << 63, 1 << 64, -(1 << 63), 10**12, 10**4000, -(10**4000))),
        lambda: 10**4299 * 9 + random.randrange(10),
        lambda: random.choice(("x" * 10**5, "\ud800", "\0", "é" * 999, "../../etc/passwd")),
        lambda: f"{NESTED}{random.choice((5, 300, 10**5, *range(880, 1000, 5)))}",
        lambda: [random.randrange(9)] * random.choice((1, 2, 3, 4, 100, 10**4)),
        lambda: {"a": {"b": [1, {"c": None}]}},
    ]
    return random.choice(pool)()


def places(data: Any, before: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in a description, leaves and branches."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    found = [((*before, key), value) for key, value in items]
    return [path for path, _ in found] + [deeper for path, value in found for deeper in places(value, path)]


def _holder(data: Any, path: tuple[str | int, ...]) -> Any:
    for key in path[:-1]:
        data = data[key]
    return data


def change_value(data: dict[str, Any], random: Random) -> str:
    path = random.choice(places(data))
    _holder(data, path)[path[-1]] = odd_value(random)
    return json.dumps(data)


def nudge_number(data: dict[str, Any], random: Random) -> str:
    numbers = [path for path in places(data) if type(_holder(data, path)[path[-1]]) is int]
    for path in random.sample(numbers, random.choice((1, 1, 2, 5))):
        old = _holder(data, path)[path[-1]]
        new = (old + 1, old - 1, 2 * old, old // 2, -old, old + 256, 1 << random.randrange(70))
        _holder(data, path)[path[-1]] = random.choice(new)
    return json.dumps(data)


def every_number_alike(data: dict[str, Any], random: Random) -> str:
    """All that are equal to one number replaced by the same other: descriptions that stay consistent."""
    numbers = [path for path in places(data) if type(_holder(data, path)[path[-1]]) is int]
    path = random.choice(numbers)
    old = _holder(data, path)[path[-1]]
    new = random.choice((1, 2, 3, 4, 8, 16, 64, 500, 1024, 4096, 1 << 14, 1 << 19, 1 << 23, 1 << 40, 10**4200))
    for path in numbers:
        if _holder(data, path)[path[-1]] == old:
            _holder(data, path)[path[-1]] = new
    return json.dumps(data)


def change_keys(data: dict[str, Any], random: Random) -> str:
    """A field missing, renamed, or one too many."""
    path = random.choice([path for path in places(data) if type(_holder(data, path)) is dict])
    holder = _holder(data, path)
    value = holder.pop(path[-1]) if random.random() < 0.7 else None
    if random.random() < 0.5:
        holder[random.choice((str(path[-1]) + " ", "__class__", "", "name", "x" * 9999))] = value
    return json.dumps(data)


def change_nodes(data: dict[str, Any], random: Random) -> str:
    nodes = data["nodes"]
    kind = random.randrange(5)
    if kind == 0:
        random.shuffle(nodes)
    elif kind == 1:
        nodes.pop(random.randrange(len(nodes)))
    elif kind == 2:
        nodes.insert(random.randrange(len(nodes) + 1), copy.deepcopy(random.choice(nodes)))
    elif kind == 3:
        first, second = random.sample(nodes, 2)
        first["name"] = second["name"]
    else:
        node = random.choice(nodes)
        node["inputs"] = [random.choice(nodes)["name"] for _ in range(random.choice((0, 1, 2, 3, 1000)))]
    return json.dumps(data)


def many_nodes(data: dict[str, Any], random: Random) -> str:
    """A long chain of sums, each well formed, of a map that may be large."""
    size = random.choice((1, 4, 2896))
    first = data["nodes"][0] | {"shape": [1, size, size]}
    count = random.choice((10, 1000, 5000 if size == 4 else 10))
    node = {"operation": "add", "shape": [1, size, size], "log_step": first["log_step"], "module": ""}
    chain = [node | {"name": str(i), "inputs": [str(i - 1) if i else "x"] * 2} for i in range(count)]
    return json.dumps(data | {"nodes": [first | {"name": "x"}, *chain]})


def huge_layer(data: dict[str, Any], random: Random) -> str:
    """One outsized layer, everything around it consistent, so that nothing but its size is wrong with it."""
    kernel, stride = random.choice(((1, 1), (1, 1), (1, 64), (3, 1), (3, 1), (64, 64), (65, 1), (3000, 1)))
    height, width = random.choice((1, 1, 4, 500, 4096, 100000)), random.choice((1, 4, 4096))
    padding = random.choice((0, kernel - 1, kernel // 2))
    channels = [1 << random.randrange(random.choice((5, 24))) for _ in range(2)]
    toy, bits = data["parameters"]["ring_degree"], [54, 54, 53, 53]
    n, bits = random.choice(((toy, bits), (8192, bits), (32768, [60] * 14)))
    out = [(side + 2 * padding - kernel) // stride + 1 for side in (height, width)]
    shape = {
        **{"height": height, "width": width, "in_channels": channels[0], "out_channels": channels[1]},
        **{"kernel": kernel, "stride": stride, "padding": padding},
        "groups": random.choice((1, 1, 1, 2, min(channels))),
    }
    b = random.choice((1, 1, 2, 1 << random.randrange(12)))
    layer: dict[str, Any] = {"shape": shape, "block_size": b, "ring_degree": n}
    lengths = {b}
    if random.random() < 0.4:
        layer |= {"encoding": random.choice(("cheetah", "falcon")), "weight_bits": random.choice((2, 8, 8, 32))}
    else:
        tile = [random.choice((1, max(1, size), max(1, -(-size // 4)))) for size in out]
        layer |= {"encoding": "cirencode", "tile": tile, "pieces": pieces(layer, tile, out, random)}
        if kernel < 65 and min(out) > 0:
            axes = (Axis(side, kernel, stride, padding) for side in (height, width))
            lengths |= {CyclicTiles(axis, h).length for axis, h in zip(axes, tile, strict=True)}
    multiple = math.lcm(2 * n, *(max(length, 1) for length in lengths))
    t = modular.largest_prime(52, multiple) if multiple < 1 << 40 else 257
    parameters = {"ring_degree": n, "coefficient_bits": bits, "plain_modulus": t}
    first = data["nodes"][0] | {"shape": [channels[0], height, width]}
    last = data["nodes"][1] | {"layer": layer, "inputs": [first["name"]], "shape": [channels[1], *out]}
    return json.dumps(data | {"nodes": [first, last], "parameters": parameters})


def pieces(layer: dict[str, Any], tile: list[int], out: list[int], random: Random) -> list[dict[str, Any]]:
    """Like pieces that cover the grid of groups and tiles, unless they would be more than a message can hold."""
    groups, n = layer["shape"]["groups"], layer["ring_degree"]
    tiles = math.prod(-(-size // h) for size, h in zip(out, tile, strict=True))
    held = random.choice((1, groups)), random.choice((1, max(1, tiles)))
    piece = {
        **{"groups": held[0], "tiles": held[1], "lanes": random.choice((1, 2, 64, n // 4, n // 2))},
        **{"baby_steps": random.choice((1, 2, 64, n // 4, n // 2)), "copies": random.choice((1, 1, 1, 2, 64))},
        "giants_on_shares": random.random() < 0.5,
        "folds_on_shares": random.random() < 0.5,
    }
    return [piece] * min(groups // held[0] * max(1, tiles // held[1]), 5000)


def repeat_a_name(data: dict[str, Any], random: Random) -> str:
    """A name twice in one JSON object: of those Python keeps the last."""
    text = json.dumps(data)
    name = random.choice(("parameters", "nodes", "bounds", "layer", "shape", "name"))
    return text.replace(f'"{name}":', f'"{name}": {json.dumps(odd_value(random))}, "{name}":', 1)


def nonsense(data: dict[str, Any], random: Random) -> str:
    depth = random.choice((10, 900, 10**5))
    pool: list[Callable[[], str]] = [
        lambda: "[" * depth,
        lambda: "[" * depth + "]" * depth,
        lambda: '{"nodes":' * depth + "1" + "}" * depth,
        lambda: "9" * random.choice((10, 4299, 4301, 10**5)),
        lambda: json.dumps(odd_value(random)),
        lambda: "NaN",
        lambda: json.dumps([data]),
        lambda: json.dumps(data) * 2,
        lambda: " " * 10**5,
        lambda: "[" + "[]," * random.choice((10**2, 10**5)) + "[]]",
    ]
    return random.choice(pool)()


DESCRIPTIONS: list[Callable[[dict[str, Any], Random], str]] = [
    *(change_value, change_value, nudge_number, nudge_number, every_number_alike, change_keys),
    *(change_nodes, many_nodes, huge_layer, huge_layer, repeat_a_name, nonsense),
]


def greeting(honest: Honest, random: Random) -> bytes:
    """One mutated greeting: its bytes, or what it says."""
    if random.random() < 0.2:
        return random.choice((flip_bits, cut, lengthen, splice, move_within, noise))(honest, random)
    text = deepened(random.choice(DESCRIPTIONS)(json.loads(honest.content), random))
    encoding = random.choice(("utf-8", "utf-8", "utf-8", "utf-16", "utf-32", "utf-8-sig"))
    return text.encode(encoding, "surrogatepass")
