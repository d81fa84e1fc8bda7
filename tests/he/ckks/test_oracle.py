"""SEAL's CKKS as an oracle: the same circuit of the same slots decrypts to the same, and not to a better result."""

import numpy as np
import pytest
import tenseal.sealapi as seal

from tests.he.ckks_toys import simulate

N, SCALE = 1024, 2.0**40


class Seal:
    """SEAL's CKKS at the toy's ring degree, with primes of the toy's sizes; INSECURE."""

    def __init__(self) -> None:
        parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
        parameters.set_poly_modulus_degree(N)
        parameters.set_coeff_modulus(seal.CoeffModulus.Create(N, [54, 40, 40, 40, 60]))
        self.context = seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.NONE)
        keys = seal.KeyGenerator(self.context)
        self.relinearization, self.galois = seal.RelinKeys(), seal.GaloisKeys()
        keys.create_relin_keys(self.relinearization)
        keys.create_galois_keys(self.galois)
        self.encryptor = seal.Encryptor(self.context, keys.secret_key())
        self.decryptor = seal.Decryptor(self.context, keys.secret_key())
        self.encoder, self.evaluator = seal.CKKSEncoder(self.context), seal.Evaluator(self.context)

    def encode(self, slots: np.ndarray):
        plaintext = seal.Plaintext()
        self.encoder.encode(slots.tolist(), SCALE, plaintext)
        return plaintext

    def fresh(self, slots: np.ndarray):
        ciphertext = seal.Ciphertext(self.context)
        self.encryptor.encrypt_symmetric(self.encode(slots), ciphertext)
        return ciphertext

    def rescaled(self, ciphertext):
        self.evaluator.rescale_to_next_inplace(ciphertext)
        return ciphertext

    def slots(self, ciphertext) -> np.ndarray:
        """The real parts, which is all that the binding decodes."""
        plaintext = seal.Plaintext()
        self.decryptor.decrypt(ciphertext, plaintext)
        return np.array(self.encoder.decode_double(plaintext))


def by_seal(oracle: Seal, operation: str, value, factor):
    made, evaluator = seal.Ciphertext(oracle.context), oracle.evaluator
    match operation:
        case "encrypt":
            return value
        case "multiply_plain":
            evaluator.multiply_plain(value, oracle.encode(factor), made)
            return oracle.rescaled(made)
        case "multiply":
            evaluator.square(value, made)
            evaluator.relinearize_inplace(made, oracle.relinearization)
            return oracle.rescaled(made)
        case "rotate":
            evaluator.rotate_vector(value, 5, oracle.galois, made)
        case "conjugate":
            evaluator.complex_conjugate(value, oracle.galois, made)
    return made


@pytest.mark.parametrize("operation", ["encrypt", "multiply_plain", "multiply", "rotate", "conjugate"])
def test_the_same_as_seal(operation, oracle, pair):
    random = np.random.default_rng(0)
    x, y = random.uniform(-1, 1, N // 2) + 1j * random.uniform(-1, 1, N // 2), random.uniform(-1, 1, N // 2)

    def circuit(machine, value):
        arguments = {"multiply_plain": (y,), "multiply": (value,), "rotate": (5,)}.get(operation, ())
        return value if operation == "encrypt" else getattr(machine, operation)(value, *arguments)

    found = circuit(pair.machine({5}, conjugates=True), pair.fresh(x))
    reply, _ = simulate(circuit, pair.server.context.parameters, bound=2**0.5)
    differences = np.abs(pair.slots(found).real - oracle.slots(by_seal(oracle, operation, oracle.fresh(x), y)))
    bound = 2.0**-reply.precision_bits
    assert bound / 64 < np.quantile(differences, 0.95) < 2 * bound
    # SEAL's digits are not centred: their mean makes its key switches worse in the first slots, where X is nearly 1.
    assert differences.max() < (64 if operation in {"rotate", "conjugate"} else 2) * bound


@pytest.fixture(scope="module")
def oracle() -> Seal:
    return Seal()
