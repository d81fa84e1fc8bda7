"""Encoded weights under a cap, in a folder, and both: always the same residues."""

from pathlib import Path

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.bfv import kernel_engine as kernel
from privcirnet.he.bfv.client import KernelClient
from privcirnet.he.bfv.kernel_engine import ClientKeys
from privcirnet.he.bfv.layer_circuit import LayerCircuit, fingerprint
from privcirnet.he.bfv.parameters import choose
from privcirnet.he.bfv.weight_cache import WeightCache
from privcirnet.he.ring import sampling

PARAMETERS = choose({1}, 40)
N, T = PARAMETERS.ring_degree, PARAMETERS.plain_modulus
SIZE = 3 * N * 8
"""Bytes of an encoded plaintext."""
CIRCUIT = LayerCircuit(
    ((0, 0), (1, 0)),
    (((0, 0), (1, 1)), ((0, 2), (1, 3)), ((0, 4), (1, 5))),
    (((0, 0),), ((1, 0),), ((2, 0),)),
    ((), (), ()),
    6,
)
NO_KEYS = ClientKeys(None, None)
SLOTS = list(sampling.uniform((6, N), T))


class Counted(list[np.ndarray]):
    """Plaintexts that count how often they are asked for."""

    asked = 0

    def __getitem__(self, weight: int) -> np.ndarray:
        self.asked += 1
        return super().__getitem__(weight)


@pytest.fixture(scope="module")
def messages() -> list[bytes]:
    client = KernelClient(PARAMETERS)
    return [client.encrypt(row) for row in sampling.uniform((2, N), T)]


def residues(cache: WeightCache, messages: list[bytes], slots: list[np.ndarray]) -> list[np.ndarray]:
    """What two images in a row come to."""
    server = kernel.KernelServer(PARAMETERS, cache)
    weights, found = server.encode_weights(CIRCUIT, slots), []
    for _ in range(2):
        inputs = server.receive_all(messages, None)
        found.append(np.stack([c.residues for c in server.evaluate(CIRCUIT, weights, inputs, NO_KEYS)]))
    assert np.array_equal(*found)
    return found[0]


@pytest.fixture(scope="module")
def expected(messages: list[bytes]) -> np.ndarray:
    return residues(WeightCache(), messages, SLOTS)


@pytest.mark.parametrize("kept", [0, 1, 3, 5, 6, 100])
def test_results_do_not_depend_on_the_cap(
    kept: int, messages: list[bytes], expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "LIMITS", kernel.Limits(rotated=1, sums=1, products=1))
    cache, slots = WeightCache(kept * SIZE), Counted(SLOTS)
    assert np.array_equal(residues(cache, messages, slots), expected)
    assert cache.taken == min(kept, 6) * SIZE
    looked_at, encoded = 6, min(kept, 6)
    assert slots.asked == looked_at + encoded + 2 * (6 - encoded)


def test_layers_share_the_cap_and_the_first_to_come_stay(messages: list[bytes], expected: np.ndarray) -> None:
    cache = WeightCache(8 * SIZE)
    server = kernel.KernelServer(PARAMETERS, cache)
    first, second = (server.encode_weights(CIRCUIT, SLOTS) for _ in range(2))
    assert (len(first.cached.kept), len(second.cached.kept)) == (6, 2)
    inputs = server.receive_all(messages, None)
    for weights in (first, second, first):
        found = [c.residues for c in server.evaluate(CIRCUIT, weights, inputs, NO_KEYS)]
        assert np.array_equal(np.stack(found), expected)


@pytest.mark.parametrize("limit", [None, 0, 2 * SIZE])
def test_a_folder_keeps_them(limit: int | None, messages: list[bytes], expected: np.ndarray, tmp_path: Path) -> None:
    for start in range(2):
        slots = Counted(SLOTS)
        assert np.array_equal(residues(WeightCache(limit, tmp_path / "new"), messages, slots), expected)
        assert slots.asked == 6 + 6 + (6 if start == 0 else 0)
    assert [path.name for path in (tmp_path / "new").iterdir()] == [f"{fingerprint(SLOTS, PARAMETERS)}.npy"]


def test_weights_of_one_use_leave_nothing(messages: list[bytes], expected: np.ndarray, tmp_path: Path) -> None:
    """They are another party's secrets too: none stays in memory or goes to the folder, each is made once."""
    cache, slots = WeightCache(None, tmp_path / "folder"), Counted(SLOTS)
    server = kernel.KernelServer(PARAMETERS, cache)
    weights = server.encode_weights(CIRCUIT, slots, keep=False)
    inputs = server.receive_all(messages, None)
    found = np.stack([c.residues for c in server.evaluate(CIRCUIT, weights, inputs, NO_KEYS)])
    assert np.array_equal(found, expected)
    assert (cache.taken, len(weights.cached.kept), slots.asked) == (0, 0, len(SLOTS))
    assert not (tmp_path / "folder").exists()


def test_a_file_is_for_its_weights_and_parameters_alone() -> None:
    other = choose({1}, 41)
    changed = [row.copy() for row in SLOTS]
    changed[5][-1] ^= np.uint64(1)
    found = {fingerprint(slots, p) for slots in (SLOTS, changed, SLOTS[:5]) for p in (PARAMETERS, other)}
    assert len(found) == 6


@pytest.mark.parametrize("damage", [b"", b"no numpy file", None])
def test_a_damaged_file_is_written_again(
    damage: bytes | None, messages: list[bytes], expected: np.ndarray, tmp_path: Path
) -> None:
    path = tmp_path / f"{fingerprint(SLOTS, PARAMETERS)}.npy"
    if damage is None:
        np.save(path, np.zeros((2, 3, N), dtype=np.uint64))
    else:
        path.write_bytes(damage)
    assert np.array_equal(residues(WeightCache(None, tmp_path), messages, SLOTS), expected)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_folder_that_cannot_be_written_is_named(messages: list[bytes], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RuleError, match=r"encoded weights must be writable.*file"):
        residues(WeightCache(None, tmp_path / "file"), messages, SLOTS)


def test_a_folder_of_weights_is_its_owners_alone(tmp_path):
    """Whoever can read it has the model, whoever can write there can change it."""
    folder = tmp_path / "new"
    WeightCache(folder=folder).layer((2, 1, 4), lambda array, numbers: array.fill(7), lambda: "fingerprint")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600]
    folder.chmod(0o755)
    with pytest.raises(RuleError, match=r"must be its owner's alone: got .* with mode 755; chmod 700"):
        WeightCache(folder=folder).layer((2, 1, 4), lambda array, numbers: None, lambda: "fingerprint")
