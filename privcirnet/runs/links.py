"""The cost of an inference over networks: measured seconds, plus those of its bytes and round trips."""

from privcirnet.artifact.summaries import LinkPrediction
from privcirnet.he.planning.profile import LINKS


def over_links(compute: float, size: float, rounds: float) -> dict[str, LinkPrediction]:
    """Return seconds over every link of :data:`LINKS` but "local".

    Args:
        compute: seconds measured where both parties are on one machine.
        size: bytes both ways.

    >>> over_links(1.0, 9e6, 10)["wan"].seconds
    2.8
    """
    predictions = dict[str, LinkPrediction]()
    for name, link in LINKS.items():
        if name != "local":
            parts = compute, size / link.bandwidth, rounds * link.round_trip
            predictions[name] = LinkPrediction(*parts, seconds=sum(parts))
    return predictions
