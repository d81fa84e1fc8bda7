"""A square once its encrypted part was done ahead: each party's arithmetic is one pass over its shares.

With z = z_c + z_s and a uniform stand-in a for the server's share, (z_c + a)^2 was shared ahead as v_c + v_s. The
server sends d = z_s - a; the client answers e = 2 z_c d + v_c - w with its uniform share w of the square; and the
server's share is z_s^2 + e + v_s - a^2 = z^2 - w. What each party adds is known ahead: its ``terms``.
"""

from privcirnet.he.clear import compiled
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues


def answer(z: Residues, d: Residues, terms: Residues, t: int) -> Residues:
    """Return the client's answer, 2 z d + terms.

    Args:
        z: the client's share, of any shape, as all others.
        d: from the server.
        terms: the client's, v_c - w.
        t: prime under 2^61.
    """
    if not compiled.installed():
        return modular.add(modular.multiply(z, modular.add(d, d, t), t), terms, t)
    from privcirnet.he.clear.kernels.elementwise import square_answer

    return compiled.elementwise(square_answer, (z, d, terms), compiled.modulus(t))


def finish(z: Residues, e: Residues, terms: Residues, t: int) -> Residues:
    """Return the server's share of the square, z^2 + e + terms.

    Args:
        z: the server's share, of any shape, as all others.
        e: the client's answer.
        terms: the server's, v_s - a^2.
        t: prime under 2^61.
    """
    if not compiled.installed():
        return modular.add(modular.add(modular.multiply(z, z, t), e, t), terms, t)
    from privcirnet.he.clear.kernels.elementwise import square_finish

    return compiled.elementwise(square_finish, (z, e, terms), compiled.modulus(t))
