import hashlib

import numpy as np

IV = np.array(
    [
        0x6A09E667F3BCC908,
        0xBB67AE8584CAA73B,
        0x3C6EF372FE94F82B,
        0xA54FF53A5F1D36F1,
        0x510E527FADE682D1,
        0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B,
        0x5BE0CD19137E2179,
    ],
    dtype=np.uint64,
)
S = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
]


def ror(x, r):
    return (x >> np.uint64(r)) | (x << np.uint64(64 - r))


def stream(seed, words):
    nb = -(-8 * words // 4096)
    out = np.empty((nb, 64, 8), np.uint64)
    for c in range(nb):
        h0 = np.frombuffer(
            hashlib.blake2b(
                c.to_bytes(8, "little"), key=seed, digest_size=64, fanout=1, depth=1, node_offset=4096 << 32
            ).digest(),
            dtype="<u8",
        )
        lanes = np.arange(64, dtype=np.uint64)
        p = np.zeros((8, 64), np.uint64)
        p[0] = 64 | (64 << 32)
        p[1] = lanes | np.uint64(4096 << 32)
        p[2] = 0 | (64 << 8)
        h = IV[:, None] ^ p
        v = np.concatenate([h, np.repeat(IV[:, None], 64, 1)])
        v[12] ^= np.uint64(64)
        v[14] = ~v[14]
        m = np.zeros(16, np.uint64)
        m[:8] = h0
        for r in range(12):
            s = S[r % 10]
            for i, (a, b, cc, d) in enumerate(
                [
                    (0, 4, 8, 12),
                    (1, 5, 9, 13),
                    (2, 6, 10, 14),
                    (3, 7, 11, 15),
                    (0, 5, 10, 15),
                    (1, 6, 11, 12),
                    (2, 7, 8, 13),
                    (3, 4, 9, 14),
                ]
            ):
                v[a] += v[b] + m[s[2 * i]]
                v[d] = ror(v[d] ^ v[a], 32)
                v[cc] += v[d]
                v[b] = ror(v[b] ^ v[cc], 24)
                v[a] += v[b] + m[s[2 * i + 1]]
                v[d] = ror(v[d] ^ v[a], 16)
                v[cc] += v[d]
                v[b] = ror(v[b] ^ v[cc], 63)
        h ^= v[:8] ^ v[8:]
        out[c] = h.T
    return out.reshape(-1)[:words]


def expand(seed, primes, n):
    w = stream(seed, len(primes) * n + 4096)
    pos = len(primes) * n
    out = w[:pos].reshape(len(primes), n).copy()
    for j, q in enumerate(primes):
        mm = (2**64 - 1) - ((2**64 - 1) % q) - 1
        for i in np.flatnonzero(out[j] >= np.uint64(mm)):
            while True:
                v = w[pos]
                pos += 1
                if v < mm:
                    break
            out[j, i] = v
        out[j] %= np.uint64(q)
    return out
