import functools
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import privcirnet.he
from privcirnet.errors import RuleError
from privcirnet.he.engines import cleartext, interface, kernel, tenseal
from privcirnet.he.params.noise import noise_bits
from privcirnet.he.params.parameters import choose
from privcirnet.he.params.security import MAX_LOG_Q
from privcirnet.he.params.sizes import SEED_BYTES
from privcirnet.he.ring import batching, modular, sampling

PARAMETERS = choose({1}, 46)
N, T = PARAMETERS.ring_degree, PARAMETERS.plain_modulus
NOISE = noise_bits(N, 46, 2)
STEPS = (1, 2, 256, 3000, 4095)

SINGLE = ("tenseal", "cleartext")
"""Engines that work on one ciphertext at a time."""


@functools.cache
def pair(name: str) -> tuple[interface.ClientEngine, interface.ServerEngine, interface.EvaluationKeys]:
    """(client, server, keys) of one engine."""
    client, server = interface.client_engine(name, PARAMETERS), interface.server_engine(name, PARAMETERS)
    return client, server, server.load_keys(client.public_keys(STEPS), STEPS)


def random_slots() -> np.ndarray:
    return sampling.uniform((N,), T)


X, Y, Z = random_slots(), random_slots(), random_slots()

CHAIN = {
    "nothing": lambda s, c, keys: c,
    "add_plain": lambda s, c, keys: s.add_plain(c, s.encode(Y)),
    "multiply in coefficient form": lambda s, c, keys: s.multiply(c, s.encode(Y)),
    "multiply in NTT form": lambda s, c, keys: s.from_ntt(s.multiply(s.to_ntt(c), s.encode_factor(Y))),
    "add": lambda s, c, keys: s.add(c, s.add_plain(c, s.encode(Z))),
    "add in NTT form": lambda s, c, keys: s.from_ntt(s.add(s.to_ntt(c), s.to_ntt(s.add_plain(c, s.encode(Z))))),
    "there and back": lambda s, c, keys: s.from_ntt(s.to_ntt(c)),
    **{f"rotate by {step}": lambda s, c, keys, step=step: s.rotate(c, step, keys) for step in STEPS},
    "a layer": lambda s, c, keys: s.rotate(
        s.from_ntt(
            s.add(
                s.multiply(s.to_ntt(c), s.encode_factor(Y)),
                s.multiply(s.to_ntt(s.rotate(c, 256, keys)), s.encode_factor(Z)),
            )
        ),
        3000,
        keys,
    ),
}


@pytest.mark.parametrize("name", CHAIN)
def test_encrypted_operation_equals_its_clear_text_twin(name: str) -> None:
    results, counts = [], []
    for kind in SINGLE:
        client, server, keys = pair(kind)
        before = server.counts.copy()
        reply = server.reply(CHAIN[name](server, server.receive(client.encrypt(X)), keys), keys, NOISE)
        results.append(client.decrypt(reply))
        counts.append(server.counts - before)
    assert results[0].dtype == results[1].dtype == np.uint64
    assert np.array_equal(*results)
    assert counts[0] == counts[1]
    assert name == "nothing" or not np.array_equal(results[0], X) or name == "there and back"


def test_rotation_turns_both_rows_left() -> None:
    client, server, keys = pair("tenseal")
    rotated = client.decrypt(server.reply(server.rotate(server.receive(client.encrypt(X)), 256, keys), keys, NOISE))
    rows = X.reshape(2, -1)
    assert (rotated == np.concatenate([rows[0, 256:], rows[0, :256], rows[1, 256:], rows[1, :256]])).all()


def test_encryption_is_fresh_every_time() -> None:
    client, server, keys = pair("tenseal")
    first, second = client.encrypt(X), client.encrypt(X)
    assert first != second
    assert first[-SEED_BYTES:] != second[-SEED_BYTES:]
    assert server.reply(server.receive(first), keys, NOISE) != server.reply(server.receive(second), keys, NOISE)
    other = interface.client_engine("tenseal", PARAMETERS)
    assert not np.array_equal(other.decrypt(server.reply(server.receive(first), keys, NOISE)), X)


def test_the_library_adds_the_two_share_products() -> None:
    """Golden: (1, 2, ...) times 3 plus 5, written out."""
    client, server, keys = pair("tenseal")
    slots = np.arange(N, dtype=np.uint64)
    three, five = np.full(N, 3, dtype=np.uint64), np.full(N, 5, dtype=np.uint64)
    product = server.multiply(server.receive(client.encrypt(slots)), server.encode(three))
    assert client.decrypt(server.reply(server.add_plain(product, server.encode(five)), keys, NOISE))[:4].tolist() == [
        5,
        8,
        11,
        14,
    ]


def test_clear_text_twin_is_as_strict_as_the_library() -> None:
    client, server, keys = pair("cleartext")
    c = server.receive(client.encrypt(X))
    with pytest.raises(RuntimeError, match="rotation by 5 needs a key"):
        server.rotate(c, 5, keys)
    for broken in (
        lambda: server.rotate(server.to_ntt(c), 1, keys),
        lambda: server.multiply(server.to_ntt(c), server.encode(Y)),
        lambda: server.multiply(c, server.encode_factor(Y)),
        lambda: server.add(server.to_ntt(c), c),
        lambda: server.add_plain(server.to_ntt(c), server.encode(Y)),
        lambda: server.add_plain(c, server.encode_factor(Y)),
        lambda: server.multiply(c, server.encode(np.zeros(N, dtype=np.uint64))),
        lambda: server.reply(server.to_ntt(c), keys, NOISE),
    ):
        with pytest.raises(RuntimeError, match=r"form|transparent"):
            broken()


def test_the_library_refuses_what_the_twin_refuses() -> None:
    client, server, keys = pair("tenseal")
    c = server.receive(client.encrypt(X))
    for broken in (
        lambda: server.rotate(c, 5, keys),
        lambda: server.rotate(server.to_ntt(c), 1, keys),
        lambda: server.add(server.to_ntt(c), c),
        lambda: server.multiply(c, server.encode(np.zeros(N, dtype=np.uint64))),
    ):
        with pytest.raises((RuntimeError, ValueError)):
            broken()


KEPT = np.unique(np.concatenate([[0, N - 1], np.random.default_rng(3).integers(0, N, 300)]))


def test_a_reply_with_some_coefficients_decrypts_to_those() -> None:
    found = []
    for kind in SINGLE:
        client, server, keys = pair(kind)
        ciphertext = server.add_plain(server.receive(client.encrypt(X)), server.encode(Y))
        slots = client.decrypt(server.reply(ciphertext, keys, NOISE, KEPT), KEPT)
        found.append(batching.slots_to_coefficients(slots, T))
    wanted = batching.slots_to_coefficients(modular.add(X, Y, T), T)
    assert (found[0][KEPT] == wanted[KEPT]).all()
    assert (found[1][KEPT] == wanted[KEPT]).all()
    left_out = np.setdiff1d(np.arange(N), KEPT)
    assert (found[0][left_out] != wanted[left_out]).all(), "what was not sent can't be decrypted"
    assert not found[1][left_out].any()


def test_a_reply_with_some_coefficients_is_that_much_shorter() -> None:
    client, server, keys = pair("tenseal")
    ciphertext = server.receive(client.encrypt(X))
    whole, part = (server.reply(ciphertext, keys, NOISE, kept) for kept in (None, KEPT))
    assert len(part) * 2 * N == len(whole) * (N + len(KEPT))


@pytest.mark.parametrize("kind", SINGLE)
def test_replies_with_other_coefficients_are_refused(kind: str) -> None:
    client, server, keys = pair(kind)
    ciphertext = server.receive(client.encrypt(X))
    whole, part = (server.reply(ciphertext, keys, NOISE, kept) for kept in (None, KEPT))
    for message, kept in ((whole, KEPT), (part, None), (part, KEPT[1:]), (part[:-1], KEPT), (part + b"\0", KEPT)):
        with pytest.raises(RuleError, match=r"length that the parameters fix|must hold n words"):
            client.decrypt(message, kept)
    broken = b"\xff" * 8 + part[8:]
    with pytest.raises(RuleError, match=r"under its prime|mod t"):
        client.decrypt(broken, KEPT)


@pytest.mark.parametrize("kind", interface.ENGINES)
def test_keys_for_other_rotations_are_refused(kind: str) -> None:
    client, server, _ = pair(kind)
    few = client.public_keys([1])
    for message, steps in ((few, [1, 2]), (few, []), (b"", [1]), (few[:-1], [1]), (few + b"\0", [1])):
        with pytest.raises(RuleError, match="keys must"):
            server.load_keys(message, steps)


@pytest.mark.parametrize("kind", SINGLE)
def test_no_rotations_need_no_keys(kind: str) -> None:
    client, server, _ = pair(kind)
    keys = server.load_keys(client.public_keys([]), [])
    with pytest.raises((RuntimeError, ValueError)):
        server.rotate(server.receive(client.encrypt(X)), 1, keys)


@pytest.mark.parametrize(
    ("message", "match"), [(b"", "n words"), (bytes(8 * N - 1), "n words"), (bytes([255]) * 8 * N, "mod t")]
)
def test_clear_text_messages_are_checked(message: bytes, match: str) -> None:
    client, server, _ = pair("cleartext")
    for take in (client.decrypt, server.receive):
        with pytest.raises(RuleError, match=match):
            take(message)


def test_unknown_engine() -> None:
    for make in (interface.client_engine, interface.server_engine):
        with pytest.raises(RuleError, match="got 'plain'; use one of kernel, tenseal, cleartext"):
            make("plain", PARAMETERS)


def test_without_numba_the_slower_engine_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privcirnet.he.engines, "kernels", privcirnet.he.engines.kernels)
    for name in [name for name in sys.modules if name.startswith(kernel.__name__)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.warns(UserWarning, match="engine=kernel needs Numba"):
        assert type(interface.server_engine("kernel", PARAMETERS)) is tenseal.TensealServer


def test_with_numba_the_compiled_engine_is_used() -> None:
    assert type(interface.server_engine("kernel", PARAMETERS)) is kernel.KernelServer
    assert type(interface.client_engine("kernel", PARAMETERS)) is tenseal.TensealClient


def files(context: object) -> Iterator[bytes]:
    for path in context._file.parent.iterdir():  # type: ignore[attr-defined]
        yield path.read_bytes()


def test_no_secret_key_is_written_and_the_folder_goes_away() -> None:
    client = tenseal.TensealClient(PARAMETERS)
    folder = client._context._file.parent
    assert folder.stat().st_mode & 0o077 == 0
    secret = client._keys.secret_key()
    client.public_keys([1])
    client.encrypt(X)
    written = list(files(client._context))
    secret.save(str(client._context._file))
    (own,) = files(client._context)
    assert all(len(item) != len(own) for item in written)
    del client, secret
    assert not folder.exists()


@pytest.mark.parametrize(("n", "bits"), [(4096, (37, 36, 36)), (8192, (60, 60, 60, 38)), (16384, (60,) * 6 + (48, 30))])
def test_library_agrees_on_security(n: int, bits: tuple[int, ...]) -> None:
    """What Parameters accepts at the very limit, the library's own 128-bit check accepts."""
    assert sum(bits) == MAX_LOG_Q[n]
    assert interface.server_engine("tenseal", choose({1}, 20, n, bits)).parameters.ring_degree == n


def test_engines_have_every_method_of_the_interface() -> None:
    for role, modules in (("Client", (cleartext, tenseal)), ("Server", (cleartext, tenseal, kernel))):
        methods = {name for name in vars(getattr(interface, f"{role}Engine")) if not name.startswith("_")}
        for module in modules:
            assert methods <= set(dir(getattr(module, f"{module.__name__.split('.')[-1].capitalize()}{role}"))) | {
                "parameters",
                "counts",
            }
