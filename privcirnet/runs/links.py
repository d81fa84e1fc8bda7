"""What an inference takes over networks: what was measured here, and what its bytes and round trips add."""

from privcirnet.he.planning.profile import LINKS


def over_links(compute: float, size: float, rounds: float) -> dict[str, dict[str, float]]:
    """Return seconds over every link of :data:`LINKS` but "local".

    Args:
        compute: seconds measured where both parties are on one machine.
        size: bytes, both ways.

    Returns:
        by link: ``compute``, ``transfer``, ``round_trips`` and their sum ``seconds``.

    >>> over_links(1.0, 9e6, 10)["wan"]["seconds"]
    2.8
    """
    found = dict[str, dict[str, float]]()
    for name, link in LINKS.items():
        if name != "local":
            parts = {"compute": compute, "transfer": size / link.bandwidth, "round_trips": rounds * link.round_trip}
            found[name] = {**parts, "seconds": sum(parts.values())}
    return found
