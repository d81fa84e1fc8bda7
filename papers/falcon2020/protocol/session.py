"""Both parties of a leveled program as a service runs them; a harness that has both may watch every layer."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from papers.falcon2020.protocol import description
from papers.falcon2020.protocol.inference import LeveledInferenceClient, LeveledInferenceServer, Watched
from papers.falcon2020.protocol.leveled_program import Description, LeveledProgram
from privcirnet.errors import RuleError
from privcirnet.he.bfv import engines
from privcirnet.he.bfv.weight_cache import WeightCache
from privcirnet.he.protocol.offline.store import PreparedStore
from privcirnet.he.protocol.one_message.reading import Message
from privcirnet.he.protocol.one_message.session import OneMessageClient, OneMessageServer, OneMessageSession
from privcirnet.he.rlwe.wire_bytes import Message as Bytes


class LeveledServer(OneMessageServer[LeveledInferenceServer]):
    """One program, its weights encoded, ready for sessions.

    Args:
        engine: "kernel", "tenseal" or "cleartext", which hides nothing.
        spectra: is not used: weights are encoded from themselves.
        cache: how much memory encoded weights may take; None: as much as they need.
        watched: whether sessions keep the last image's values for an audit.
    """

    def __init__(
        self,
        program: LeveledProgram,
        engine: str = "kernel",
        spectra: object = None,
        cache: WeightCache | None = None,
        *,
        watched: bool = False,
    ) -> None:
        check_engine(engine, program.description)
        self._signature, self._public = b"", description.to_dict(program.description)
        self.description = program.description
        self.inference = LeveledInferenceServer(program.plan, program.parameters, engine, cache)
        self.ends = program.ends if watched else {}

    def in_words(self) -> str:
        return self.inference.in_words()

    def client(self, engine: str) -> "LeveledClient":
        return LeveledClient(self.greeting(), engine)

    def session(self, keys: Bytes | None, store: PreparedStore | None = None, owner: bytes = b"") -> "LeveledSession":
        return LeveledSession(self, self.loaded(keys))


class LeveledSession(OneMessageSession[LeveledInferenceServer]):
    """One client's inferences, one image after the other."""

    def __init__(self, server: LeveledServer, keys: Any) -> None:
        super().__init__(server, keys)
        self._ends, self._watched = server.ends, Watched(tuple(server.ends.values())) if server.ends else None

    def answer(self, request: Message) -> Message:
        return self.server.inference.answer(request, self.keys, watched=self._watched)

    def seen(self) -> dict[str, list[bytes]]:
        """Return the last image's values under the client's keys: for a harness that has both parties.

        Returns:
            by name of the layer, for each plain modulus what :meth:`LeveledInferenceServer.answer` makes of it; nothing
            where none are kept.
        """
        if self._watched is None:
            return {}
        every = self.server.inference.reveal(self._watched, self.keys)
        return {name: [row[number] for row in every] for number, name in enumerate(self._ends)}

    def close(self) -> None:
        super().close()
        if self._watched is not None:
            self._watched.found.clear()


class LeveledClient(OneMessageClient[LeveledInferenceClient]):
    """One client of one leveled program; its results are Python integers, (K,), of a batch image by image."""

    def described(self, data: Any, engine: str) -> tuple[Description, Callable[[], LeveledInferenceClient]]:
        known = description.from_dict(data)
        check_engine(engine, known)
        return known, lambda: LeveledInferenceClient(known.plan, known.parameters, engine)

    def opened(self, revealed: Mapping[str, list[bytes]]) -> dict[str, list[np.ndarray]]:
        """Return the values that an audit looks at: for each plain modulus the slots."""
        return {name: self.inference.slots(messages) for name, messages in revealed.items()}


def check_engine(name: str, known: Description) -> None:
    """Raise unless there is an engine of this name, and the program's parameters are for it.

    The kernels have one request for all plain moduli, SEAL one for each; noise was estimated for one of the two.

    Args:
        name: one of :data:`bfv.engines.ENGINES`.
    """
    engines.check_engine(name)
    made_for = "kernel" if known.together else "tenseal"
    if name not in (made_for, "cleartext"):
        rule, remedy = "a leveled program's parameters must be for the engine", f"make it for engine={name}"
        raise RuleError(rule, got=f"parameters for {made_for}, engine {name}", remedy=remedy)
