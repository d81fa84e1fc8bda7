"""A square once its product is prepared: z = z_c + z_s, v_c + v_s = z_c a, the server's stand-in a for its z_s.

The server sends d = z_s - a, the client answers e = 2 z_c d + 2 v_c + z_c^2 - w, where w is its uniform share of the
square. The server's share is z_s^2 + e + 2 v_s = z^2 - w. Each of the two is one pass over the values.
"""

from privcirnet.he.clear import compiled
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues


def answer(z: Residues, d: Residues, v: Residues, w: Residues, t: int) -> Residues:
    """Return the client's answer, 2 z d + 2 v + z^2 - w.

    Args:
        z: the client's share, of any shape, as all others.
        d: from the server.
        v: the client's share of the prepared product.
        w: the client's share of the square.
        t: prime under 2^61.
    """
    if not compiled.installed():
        found = modular.multiply(z, modular.add(modular.add(d, d, t), z, t), t)
        return modular.subtract(modular.add(found, modular.add(v, v, t), t), w, t)
    from privcirnet.he.clear.kernels.elementwise import square_answer

    return compiled.elementwise(square_answer, (z, d, v, w), compiled.modulus(t))


def finish(z: Residues, e: Residues, v: Residues, t: int) -> Residues:
    """Return the server's share of the square, z^2 + e + 2 v.

    Args:
        z: the server's share, of any shape, as all others.
        e: the client's answer.
        v: the server's share of the prepared product.
        t: prime under 2^61.
    """
    if not compiled.installed():
        return modular.add(modular.add(modular.multiply(z, z, t), e, t), modular.add(v, v, t), t)
    from privcirnet.he.clear.kernels.elementwise import square_finish

    return compiled.elementwise(square_finish, (z, e, v), compiled.modulus(t))
