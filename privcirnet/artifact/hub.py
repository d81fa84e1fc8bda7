"""Files of the Hugging Face hub: fetched once, then from its cache; without a network refused in seconds."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from privcirnet.errors import RuleError, first_line

HUB = "hf-hub:"
"""Prefix of the name of a network on the hub."""
_PATIENCE_S = 4.0
"""Seconds until the hub counts as out of reach."""


def hub_file(name: str, file: str) -> Path:
    """Return the path of a file of the hub, fetched unless it is in the cache.

    Args:
        name: ``hf-hub:OWNER/NAME``.

    Raises:
        RuleError: there is no such file, or the hub is out of reach.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    name = name.removeprefix(HUB)
    try:
        with offline_without_hub():
            return Path(hf_hub_download(name, file))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        got, remedy = f"{name}: {first_line(error)}", f"connect to it once, or give OWNER/NAME with {file}"
        raise RuleError("a network of the hub must be there", got=got, remedy=remedy) from error


@contextmanager
def offline_without_hub() -> Iterator[None]:
    """Let huggingface_hub use its cache alone where the hub is out of reach; by itself it tries for a minute."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _reachable(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _reachable(endpoint: str) -> bool:
    """Return whether an address, or the proxy before it, takes a connection in time."""
    target = urlsplit(endpoint)
    if (proxy := getproxies().get(target.scheme)) and not proxy_bypass(target.hostname or ""):
        target = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    place = target.hostname or "", target.port or (80 if target.scheme == "http" else 443)
    answers = SimpleQueue[bool]()

    def connect() -> None:
        try:
            socket.create_connection(place, _PATIENCE_S).close()
        except OSError:
            answers.put(False)
        else:
            answers.put(True)

    threading.Thread(target=connect, name="privcirnet hub", daemon=True).start()
    with suppress(Empty):
        return answers.get(timeout=_PATIENCE_S)
    return False
