"""The programs that a server offers, from program folders; also while it serves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from privcirnet.artifact import CKKS, format_of, read_ckks, read_program, read_signature
from privcirnet.errors import RuleError
from privcirnet.he.bfv.weight_cache import WeightCache
from privcirnet.he.program.program import Program
from privcirnet.he.program.signature import PublicKey
from privcirnet.he.protocol.one_message.session import OneMessageServer
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.served import Served
from privcirnet.runs.memory import check_sessions
from privcirnet.service.programs import Catalogue, ProgramVersion, version_of
from privcirnet.service.store import StoreLimits

Advance = Callable[[str], None]


@dataclass(frozen=True)
class ProgramFolders:
    """Program folders and their serving options.

    Attributes:
        folders: folders by name.
        gigabytes: memory of all programs' encoded weights together, in GB.
        weights_folder: folder that keeps encoded weights between starts; "" for none.
        key: the key that must have signed them; None for any program.
    """

    folders: Mapping[str, Path]
    engine: str
    gigabytes: float
    weights_folder: str = ""
    key: PublicKey | None = None

    def load(self, before: Catalogue | None = None, advance: Advance = lambda note: None) -> Catalogue:
        """Return the present programs of the folders; those unchanged since ``before`` are kept.

        Raises:
            RuleError: a folder is missing or damaged, or its program is refused.
        """
        earlier = {offer.name: offer for offer in before.offers} if before else {}
        return Catalogue({name: self._offer(name, earlier.get(name), advance) for name in self.folders})

    def _offer(self, name: str, before: ProgramVersion | None, advance: Advance) -> ProgramVersion:
        folder = self.folders[name]
        try:
            version = version_of(folder)
        except OSError:
            version = ""  # reading it says what is missing
        if before is not None and before.version == version:
            return before
        _, signature = read_signature(folder)
        server = self._server(folder, signature, partial(_advance, advance, name))
        if version_of(folder) != version:
            raise RuleError("a program must not change while it is read", got=folder, remedy="try again")
        return ProgramVersion(name, version, server)

    def _server(self, folder: Path, signature: bytes, progress: Advance) -> Served:
        """Return the server of a folder's program, interactive or CKKS."""
        ckks, gigabytes = format_of(folder) == CKKS, self.gigabytes / len(self.folders)
        server_class = OneMessageServer if ckks else Server
        program, spectra = (read_ckks(folder, self.key), None) if ckks else read_program(folder, self.key)
        cache = WeightCache.of(gigabytes, "" if ckks else self.weights_folder)
        return server_class(program, self.engine, spectra, progress, cache, signature, watched=False)


def check_room(catalogue: Catalogue, limits: StoreLimits) -> None:
    """Raise unless the store has room for the keys of a client of each program."""
    for offer in catalogue.offers:
        if offer.most.keys > 1e9 * limits.gigabytes:
            rule, size = "the store of keys must have room for a client's", offer.most.keys / 1e9
            got, remedy = f"{size:.2f} GB of {offer.name} for {limits.gigabytes:g} GB", "raise keys.gigabytes"
            raise RuleError(rule, got=got, remedy=remedy)


def check_sessions_of(catalogue: Catalogue, weights_gb: float, sessions: int) -> None:
    """Raise unless the memory has room for all sessions of any interactive program; arguments as below."""
    programs = (offer.server.known for offer in catalogue.offers)
    check_sessions([cast(Program, program) for program in programs if program.prepares], weights_gb, sessions)


def in_words(offer: ProgramVersion) -> str:
    """Return a program and its cost in words, for the operator."""
    keys = f"a client sends at most {offer.most.keys / 1e6:.1f} MB of keys once"
    return f"version {offer.version}, {offer.server.in_words()}; {keys}"


def _advance(advance: Advance, name: str, layer: str) -> None:
    advance(f"{name}: {layer}")
