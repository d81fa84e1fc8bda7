"""Engines that work on one ciphertext at a time: SEAL and its clear-text twin, alike and as strict."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.bfv import batching, engines, interface, seal
from privcirnet.he.bfv import client as kernel_client
from privcirnet.he.bfv import kernel_engine as kernel
from privcirnet.he.bfv.engines import ENGINES, engine_of
from privcirnet.he.ring import modular
from privcirnet.he.rlwe.parameters import galois_element
from tests.he.pairs import KEPT, PARAMETERS, SINGLE, STEPS, N, T, X, Y, Z, pair


def element(step: int) -> int:
    return galois_element(step, N)


CHAIN = {
    "nothing": lambda s, c, keys: c,
    "add_plain": lambda s, c, keys: s.add_plain(c, s.encode(Y)),
    "multiply in coefficient form": lambda s, c, keys: s.multiply(c, s.encode(Y)),
    "multiply in NTT form": lambda s, c, keys: s.from_ntt(s.multiply(s.to_ntt(c), s.encode_factor(Y))),
    "add": lambda s, c, keys: s.add(c, s.add_plain(c, s.encode(Z))),
    "add in NTT form": lambda s, c, keys: s.from_ntt(s.add(s.to_ntt(c), s.to_ntt(s.add_plain(c, s.encode(Z))))),
    "there and back": lambda s, c, keys: s.from_ntt(s.to_ntt(c)),
    **{f"rotate by {step}": lambda s, c, keys, step=step: s.turn(c, element(step), keys) for step in STEPS},
    "a layer": lambda s, c, keys: s.turn(
        s.from_ntt(
            s.add(
                s.multiply(s.to_ntt(c), s.encode_factor(Y)),
                s.multiply(s.to_ntt(s.turn(c, element(256), keys)), s.encode_factor(Z)),
            )
        ),
        element(3000),
        keys,
    ),
}


@pytest.mark.parametrize("name", CHAIN)
def test_encrypted_operation_equals_its_clear_text_twin(name: str) -> None:
    results, counts = [], []
    for kind in SINGLE:
        client, server, keys = pair(kind)
        before = server.counts.copy()
        reply = server.reply(CHAIN[name](server, server.receive(client.encrypt(X)), keys), keys)
        results.append(client.decrypt(reply))
        counts.append(server.counts - before)
    assert results[0].dtype == results[1].dtype == np.uint64
    assert np.array_equal(*results)
    assert counts[0] == counts[1]
    assert name == "nothing" or not np.array_equal(results[0], X) or name == "there and back"


def test_a_reply_with_some_coefficients_decrypts_to_those() -> None:
    found = []
    for kind in SINGLE:
        client, server, keys = pair(kind)
        ciphertext = server.add_plain(server.receive(client.encrypt(X)), server.encode(Y))
        slots = client.decrypt(server.reply(ciphertext, keys, KEPT), KEPT)
        found.append(batching.slots_to_coefficients(slots, T))
    wanted = batching.slots_to_coefficients(modular.add(X, Y, T), T)
    assert (found[0][KEPT] == wanted[KEPT]).all()
    assert (found[1][KEPT] == wanted[KEPT]).all()
    left_out = np.setdiff1d(np.arange(N), KEPT)
    assert (found[0][left_out] != wanted[left_out]).all(), "what was not sent can't be decrypted"
    assert not found[1][left_out].any()


@pytest.mark.parametrize("kind", SINGLE)
def test_replies_with_other_coefficients_are_refused(kind: str) -> None:
    client, server, keys = pair(kind)
    ciphertext = server.receive(client.encrypt(X))
    whole, part = (server.reply(ciphertext, keys, kept) for kept in (None, KEPT))
    for message, kept in ((whole, KEPT), (part, None), (part, KEPT[1:]), (part[:-1], KEPT), (part + b"\0", KEPT)):
        with pytest.raises(RuleError, match=r"length that the parameters fix|must hold n words"):
            client.decrypt(message, kept)
    broken = b"\xff" * 8 + part[8:]
    if kind == "tenseal":
        assert client.decrypt(broken, KEPT).shape == (N,), "every pattern of bits is a value"
        return
    with pytest.raises(RuleError, match="mod t"):
        client.decrypt(broken, KEPT)


@pytest.mark.parametrize("kind", SINGLE)
def test_no_rotations_need_no_keys(kind: str) -> None:
    client, server, _ = pair(kind)
    keys = server.load_keys(client.public_keys([]), [])
    with pytest.raises(RuleError, match=r"rotation must have a key: got none for the Galois elements \[3\]"):
        server.turn(server.receive(client.encrypt(X)), element(1), keys)


def test_clear_text_twin_is_as_strict_as_the_library() -> None:
    client, server, keys = pair("cleartext")
    c = server.receive(client.encrypt(X))
    for broken in (
        lambda: server.turn(server.to_ntt(c), element(1), keys),
        lambda: server.multiply(server.to_ntt(c), server.encode(Y)),
        lambda: server.multiply(c, server.encode_factor(Y)),
        lambda: server.add(server.to_ntt(c), c),
        lambda: server.add_plain(server.to_ntt(c), server.encode(Y)),
        lambda: server.add_plain(c, server.encode_factor(Y)),
        lambda: server.multiply(c, server.encode(np.zeros(N, dtype=np.uint64))),
        lambda: server.reply(server.to_ntt(c), keys),
    ):
        with pytest.raises(RuntimeError, match=r"form|transparent"):
            broken()


@pytest.mark.parametrize(
    ("message", "match"), [(b"", "n words"), (bytes(8 * N - 1), "n words"), (bytes([255]) * 8 * N, "mod t")]
)
def test_clear_text_messages_are_checked(message: bytes, match: str) -> None:
    client, server, _ = pair("cleartext")
    for take in (client.decrypt, server.receive):
        with pytest.raises(RuleError, match=match):
            take(message)


@pytest.mark.parametrize("kind", ENGINES)
def test_keys_for_other_rotations_are_refused(kind: str) -> None:
    client, server, _ = pair(kind)
    few = client.public_keys([1])
    for message, steps in ((few, [1, 2]), (few, []), (b"", [1]), (few[:-1], [1]), (few + b"\0", [1])):
        with pytest.raises(RuleError, match="keys must"):
            server.load_keys(message, steps)


def test_unknown_engine() -> None:
    with pytest.raises(RuleError, match="got 'plain'; use one of kernel, tenseal, cleartext"):
        engine_of("plain")


def test_the_compiled_engine_is_used() -> None:
    assert type(engine_of("kernel").server(PARAMETERS)) is kernel.KernelServer
    assert type(engine_of("kernel").client(PARAMETERS)) is kernel_client.KernelClient


def test_engines_have_every_method_of_the_interface() -> None:
    clients = engines.CleartextClient, seal.TensealClient, kernel_client.KernelClient
    servers = engines.CleartextServer, seal.TensealServer, kernel.KernelServer
    for role, kinds in (("Client", clients), ("Server", servers)):
        methods = {name for name in vars(getattr(interface, f"{role}Engine")) if not name.startswith("_")}
        for engine in kinds:
            assert methods <= {*dir(engine), "parameters", "counts"}
