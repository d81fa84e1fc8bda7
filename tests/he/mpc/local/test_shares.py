import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import DEFAULT_COEFFICIENT_BITS, Parameters
from privcirnet.he.mpc.local import shares
from privcirnet.he.program.operation import NO_ROWS, Node, Operation, Weights
from privcirnet.he.program.operations import Add, Concat, Scale, SumPool, Truncate
from privcirnet.he.program.program import Program
from privcirnet.he.program.rearrangement import Flatten, Tokens
from privcirnet.he.ring import modular, sampling
from privcirnet.he.ring.modular import Residues

T = modular.largest_prime(41, 16384)
PARAMETERS = Parameters(8192, DEFAULT_COEFFICIENT_BITS, T)


def truncate(y: int, r: int, bits: int, t: int = T) -> int:
    """Both parties' truncations of y shared as (y - r, r), put together."""
    server = np.array([r], dtype=np.uint64)
    client = modular.residues([y - r], t)
    parts = shares.truncate_client(client, bits, t), shares.truncate_server(server, bits)
    return int(modular.centered(modular.add(*parts, t), t)[0])


def wraps(y: int, r: int, t: int = T) -> bool:
    return not 0 <= y - r + t < t


@given(st.integers(-(2**36), 2**36), st.integers(0, T - 1), st.integers(1, 36))
def test_truncation_formula(y: int, r: int, bits: int) -> None:
    """floor(y / 2^f), plus 1 exactly where y mod 2^f > r mod 2^f plus t's own part; never anything else.

    With y = y_c - t + r over the integers the sum is floor(r / 2^f) - floor((t - y_c) / 2^f), t - y_c = r - y.
    """
    if wraps(y, r):
        return
    found = truncate(y, r, bits)
    assert found == (r >> bits) - (r - y >> bits)
    assert found == (y >> bits) + (y % (1 << bits) > r % (1 << bits))
    assert found in (y >> bits, -(-y >> bits))


@pytest.mark.parametrize("bits", [1, 4])
def test_every_value_and_mask_of_a_small_modulus(bits: int) -> None:
    """Exhaustive: right within one unit if and only if the shares do not wrap, and wraps are (|y| + 1) / t rare."""
    t, bound = 257, 60
    masks = np.arange(t, dtype=np.uint64)
    server = shares.truncate_server(masks, bits)
    for y in range(-bound, bound + 1):
        client = shares.truncate_client(modular.residues(y - masks.astype(np.int64), t), bits, t)
        found = modular.centered(modular.add(client, server, t), t)
        wrong = (found != y >> bits) & (found != -(-y >> bits))
        wrapped = np.array([wraps(y, r, t) for r in range(t)])
        assert not (wrong & ~wrapped).any()
        assert wrong.sum() <= wrapped.sum() <= abs(y) + 1
        assert not wrapped[bound + 1 : t - bound + 1].any()
    assert wraps(bound, bound, t)
    assert wraps(-bound, t - bound + 1, t)


OPERATIONS = {
    "add": (Add(), 2, lambda x, y: x + y),
    "pool": (SumPool(2), 1, lambda x: x[:, :4, :4].reshape(3, 2, 2, 2, 2).sum(axis=(2, 4))),
    "rectangles": (SumPool(2, 4), 1, lambda x: x[:, :4].reshape(3, 2, 2, 1, 4).sum(axis=(2, 4))),
    "concat": (Concat(2), 2, lambda x, y: np.concatenate([x, y])),
    "scale": (Scale(3), 1, lambda x: 8 * x),
    "flatten": (Flatten(), 1, lambda x: x.reshape(-1, 1, 1)),
}


def alone(operation: Operation, arity: int = 1, weights: Weights | None = None) -> tuple[Program, Node]:
    """A program that is one node."""
    node = Node("y", operation, tuple(f"x{i}" for i in range(arity)), (1, 1, 1), 0)
    return Program((node,), PARAMETERS, {"y": weights} if weights else {}), node


def server(operation: Operation, *held: Residues | None, weights: Weights | None = None) -> Residues | None:
    program, node = alone(operation, len(held), weights)
    return shares.local_server(program, node, dict(zip(node.inputs, held, strict=True)))


@pytest.mark.parametrize("name", OPERATIONS)
def test_local_operations_commute_with_sharing(name: str) -> None:
    operation, arity, clear = OPERATIONS[name]
    random = np.random.default_rng(0)
    values = [random.integers(-1000, 1000, (3, 5, 4)) for _ in range(arity)]
    masks = [sampling.uniform((3, 5, 4), T) for _ in range(arity)]
    others = [modular.subtract(modular.residues(v, T), r, T) for v, r in zip(values, masks, strict=True)]
    program, node = alone(operation, arity)
    own = shares.local_server(program, node, dict(zip(node.inputs, masks, strict=True)))
    parts = own, shares.local_client(program, node, others)
    assert (modular.centered(modular.add(*parts, T), T) == clear(*values)).all()


def test_what_the_server_has_no_share_of_is_zero() -> None:
    image, own = None, sampling.uniform((3, 5, 4), T)
    assert server(Add(), image, image) is None
    assert server(Flatten(), image) is None
    for pair in ([image, own], [own, image]):
        found = server(Add(), *pair)
        assert found is not None
        assert (found == own).all()
    for operation, weights in ((Truncate(3), None), (Tokens(), Weights(NO_ROWS, np.ones((3, 21), dtype=np.int64)))):
        with pytest.raises(RuleError, match="must have a share to work on: got the bare image"):
            server(operation, image, weights=weights)


def test_constants_are_added_by_the_server_alone() -> None:
    values, constants = np.arange(60).reshape(3, 5, 4), -np.arange(63).reshape(3, 21)
    own = sampling.uniform(values.shape, T)
    other = modular.subtract(modular.residues(values, T), own, T)
    parts = shares.local_client(*alone(Tokens()), [other]), server(Tokens(), own, weights=Weights(NO_ROWS, constants))
    expected = np.concatenate([np.zeros((3, 1)), values.reshape(3, 20)], axis=1) + constants
    assert (modular.centered(modular.add(*parts, T), T)[..., 0] == expected).all()


def test_each_party_truncates_its_way() -> None:
    share = sampling.uniform((3, 5, 4), T)
    assert (shares.local_client(*alone(Truncate(4)), [share]) == shares.truncate_client(share, 4, T)).all()
    assert (server(Truncate(4), share) == shares.truncate_server(share, 4)).all()


def test_a_share_on_the_wire() -> None:
    share, other = (sampling.uniform((2, 3, 4), T) for _ in range(2))
    message = shares.to_bytes(other)
    assert message == other.astype("<u8").tobytes()
    assert (shares.reveal(share, message, T) == modular.centered(modular.add(share, other, T), T)).all()
    with pytest.raises(RuleError, match="a share must hold one word a value: got 184 bytes"):
        shares.reveal(share, message[:-8], T)
    with pytest.raises(RuleError, match=f"a share must be under its modulus: got {T}"):
        shares.reveal(share, message[:-8] + T.to_bytes(8, "little"), T)
