"""The page's events while an image runs: server-sent events, one after the other in the answer to the image."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from privcirnet.errors import RuleError


class Event(NamedTuple):
    """An event of an inference.

    Attributes:
        name: kind of event: "connecting", "program", "image", "preparing", "rounds", "request", "reply", "answer",
            "refused" or "error".
    """

    name: str
    data: Mapping[str, Any]

    def encode(self) -> bytes:
        """Return the event in the format of text/event-stream.

        >>> Event("reply", {"bytes": 3}).encode().splitlines()
        [b'event: reply', b'data: {"bytes": 3}', b'']
        """
        return f"event: {self.name}\ndata: {json.dumps(self.data)}\n\n".encode()


def plain(error: RuleError) -> dict[str, str]:
    """Return an error as plain data."""
    return {"rule": error.rule, "got": str(error.got), "remedy": error.remedy}
