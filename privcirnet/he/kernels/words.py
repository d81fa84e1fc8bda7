import numpy as np

from privcirnet.he import sealfile


def pack(words, widths):
    octets = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape, 8)
    return b"".join(octets[j, :, :width].tobytes() for j, width in enumerate(widths))


def unpack(message, primes, widths):
    class L:
        pass

    l = L()
    l.widths = list(widths)
    l.primes = primes
    return sealfile._unpack(message, l)
