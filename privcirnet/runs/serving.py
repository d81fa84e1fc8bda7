"""What a server offers, from program folders; also while it serves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from privcirnet.artifact import LEVELED, format_of, read_leveled, read_program, read_signature
from privcirnet.errors import RuleError
from privcirnet.he.circuits.bfv.weight_cache import WeightCache
from privcirnet.he.program.signature import PublicKey
from privcirnet.he.protocol.leveled.session import LeveledServer
from privcirnet.he.protocol.parties.server import Server
from privcirnet.service.programs import Catalogue, Offer, version_of

Advance = Callable[[str], None]


@dataclass(frozen=True)
class ProgramFolders:
    """Program folders, and how they are served.

    Attributes:
        folders: by name.
        gigabytes: of encoded weights in memory, of all programs together.
        weights_folder: keeps encoded weights from one start to the next; "" for none.
        key: that must have signed them; None for any program.
    """

    folders: Mapping[str, Path]
    engine: str
    gigabytes: float
    weights_folder: str = ""
    key: PublicKey | None = None

    def load(self, before: Catalogue | None = None, advance: Advance = lambda note: None) -> Catalogue:
        """Return what the folders hold now; what has not changed since ``before`` is kept.

        Raises:
            RuleError: a folder is missing or damaged, or its program is refused.
        """
        kept = {offer.name: offer for offer in before.offers} if before else {}
        return Catalogue({name: self._offer(name, kept.get(name), advance) for name in self.folders})

    def _offer(self, name: str, before: Offer | None, advance: Advance) -> Offer:
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
        return Offer(name, version, server)

    def _server(self, folder: Path, signature: bytes, progress: Advance) -> Server | LeveledServer:
        """What the folder holds: an interactive program, or a leveled one."""
        if format_of(folder) == LEVELED:
            progress("network")
            cache = WeightCache.of(self.gigabytes / len(self.folders))
            return LeveledServer(read_leveled(folder, self.key), self.engine, signature, cache=cache)
        program, spectra = read_program(folder, self.key)
        cache = WeightCache.of(self.gigabytes / len(self.folders), self.weights_folder)
        return Server(program, self.engine, spectra, progress=progress, cache=cache, signature=signature, watched=False)


def _advance(advance: Advance, name: str, layer: str) -> None:
    advance(f"{name}: {layer}")
