"""Both halves of a prepared square against Python's integers."""

from random import Random

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.mpc.local import parallel as passes
from privcirnet.he.mpc.local import squares
from privcirnet.he.mpc.local.packing import pack
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system import threads

MODULI = [modular.largest_prime(bits, 2) for bits in (3, 20, 41, 54, 60, 61)]


def shares(count: int, number: int, t: int) -> list[Residues]:
    """Random ones; of each, the first value is 0 and the second the largest."""
    found = [np.random.default_rng(i).integers(0, t, count, dtype=np.uint64) for i in range(number)]
    for share in found:
        share[:1], share[1:2] = 0, t - 1
    return found


@pytest.mark.parametrize("t", MODULI)
@pytest.mark.parametrize("count", [0, 1, 2, 5, 1000, "edges"])
def test_both_formulae(t: int, count: int | str) -> None:
    """Of random values, and of every triple of extreme ones."""
    edges = np.array([0, 1, t // 2, t // 2 + 1, t - 2, t - 1], dtype=np.uint64)
    given = [x.reshape(-1) for x in np.meshgrid(edges, edges, edges)] if count == "edges" else shares(count, 3, t)
    rows = [*zip(*(share.tolist() for share in given), strict=True)]
    assert squares.answer(*given, t).tolist() == [(2 * z * d + v) % t for z, d, v in rows]
    assert squares.finish(*given, t).tolist() == [(z * z + e + v) % t for z, e, v in rows]


def test_the_shares_add_up_to_the_square_on_several_threads() -> None:
    t, random = MODULI[3], Random(0)
    count = 7 * (passes.AT_ONCE // 2 + 1)
    values = np.array([random.randrange(-1000, 1000) for _ in range(count)]).reshape(-1, 7, 1)
    z_c, a, v_c, w = (share.reshape(values.shape) for share in shares(count, 4, t))
    z_s, sum_ = modular.subtract(modular.residues(values, t), z_c, t), modular.add(z_c, a, t)
    v_s = modular.subtract(modular.multiply(sum_, sum_, t), v_c, t)
    with threads.using(3):
        e = squares.answer(z_c, modular.subtract(z_s, a, t), modular.subtract(v_c, w, t), t)
        found = squares.finish(z_s, e, modular.subtract(v_s, modular.multiply(a, a, t), t), t)
    assert found.shape == values.shape
    assert (modular.centered(modular.add(found, w, t), t) == values * values).all()


def test_shares_may_be_strided_and_are_not_changed() -> None:
    t = MODULI[2]
    given = [share.reshape(30, 40)[:, ::2] for share in shares(1200, 3, t)]
    before = [share.copy() for share in given]
    assert (squares.answer(*given, t) == squares.answer(*before, t)).all()
    assert all((share == kept).all() for share, kept in zip(given, before, strict=True))


@pytest.mark.parametrize("t", MODULI)
@pytest.mark.parametrize("count", [0, 1, 63, 1000, 3 * passes.AT_ONCE + 1])
@pytest.mark.parametrize("threads_", [1, 3])
def test_packed_halves_are_those_of_whole_arrays(t: int, count: int, threads_: int) -> None:
    z, other, terms = shares(count, 3, t)
    message = pack(other, t)
    expected = pack(squares.answer(z, other, terms, t), t), squares.finish(z, other, terms, t)
    asked = pack(modular.subtract(z, other, t), t)
    with threads.using(threads_):
        assert squares.ask_packed(z, other, t) == asked
        assert squares.answer_packed(z, message, terms, t) == expected[0]
        assert (squares.finish_packed(z, message, terms, t) == expected[1]).all()


@pytest.mark.parametrize("t", MODULI[3:5])
def test_a_packed_value_that_is_no_residue_is_refused_by_either_party(t: int) -> None:
    """Wherever it stands, before anything is made of it that could be sent; kernels read wide ones in another way."""
    count = 2 * passes.AT_ONCE + 5
    z, d, terms = shares(count, 3, t)
    with threads.using(2):
        for place in (0, passes.AT_ONCE + 7, count - 1):
            wrong = d.copy()
            wrong[place] = t
            for half in (squares.answer_packed, squares.finish_packed):
                with pytest.raises(RuleError, match="packed values must be under their modulus"):
                    half(z, pack(wrong, t), terms, t)
        for half in (squares.answer_packed, squares.finish_packed):
            with pytest.raises(RuleError, match=f"{count} packed values of {t.bit_length()} bits must take"):
                half(z, pack(d, t)[:-1], terms, t)
