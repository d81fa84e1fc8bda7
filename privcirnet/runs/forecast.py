"""The predicted cost of an encrypted image, from a network's shapes before its values are known.

Plans depend on shapes, parameters on the values too. Those of an untrained network say nothing of the trained one, so
all values have the usual size for 8 bits. ``compile`` chooses the real parameters, from images.
"""

from dataclasses import dataclass, replace

from torch import fx

from privcirnet.config import HEConfig
from privcirnet.he.planning.plan_program import PlannedProgram, fit_draft, predicted_online, predicted_seconds
from privcirnet.he.planning.profile import LINKS, NetworkLink, Profile
from privcirnet.he.planning.target import scaled
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.nn.modules import is_polynomial
from privcirnet.passes.lower.usual import usual_draft
from privcirnet.runs.export import target_of, with_transfers
from privcirnet.runs.memory import needed_bytes, weight_bytes

_LINKS = LINKS["local"], NetworkLink(bandwidth=1.0, round_trip=0.0)
"""Links of the prediction; on the latter each byte takes one second."""


@dataclass(frozen=True)
class Forecast:
    """The predicted cost of one encrypted image.

    Attributes:
        block_size: largest block size of any layer; 1 for dense weights.
        sent: bytes, both ways.
        rounds: messages each way.
        weights: bytes of encoded weights.
        memory: bytes of server and client in one process that keeps all encoded weights.
        log_q: bits of the coefficient modulus.
        online: seconds with the image, if all encrypted work was done before.
    """

    block_size: int
    seconds: float
    sent: float
    rounds: int
    weights: int
    memory: int
    ring_degree: int
    log_q: int
    online: float
    online_sent: int
    online_rounds: int


def profile_of_program(fused: fx.GraphModule, image: tuple[int, int, int], he: HEConfig, profile: Profile) -> Profile:
    """Return a profile's times at the (n, q) that a network's program is predicted to have; counted ones stay.

    Raises:
        DoesNotFit: no parameters carry the program.
        RuleError: a layer has no encrypted form.
    """
    if profile.counted:
        return profile
    return scaled(profile, _fitted(fused, image, he.settled(exact=not is_polynomial(fused)), profile).choice.set)


def forecast(
    fused: fx.GraphModule, image: tuple[int, int, int], he: HEConfig, profile: Profile, block_size: int
) -> Forecast:
    """Return the predicted cost of an image.

    Args:
        he: settings of the encryption; their bounds are ignored for those of usual values.

    Raises:
        DoesNotFit: no parameters carry the program.
        RuleError: a layer has no encrypted form.
    """
    he = he.settled(exact=not is_polynomial(fused))
    fitted = _fitted(fused, image, he, profile)
    program, of = with_transfers(fitted.program, he.ot), fitted.program.parameters
    there = replace(scaled(profile, fitted.choice.set), plain_bits=of.plain_bits)
    seconds, local, link = (predicted_seconds(program.nodes, there, to) for to in (LINKS[he.link], *_LINKS))
    schedule = schedule_of(program)
    costs = seconds, link - local, schedule.rounds, weight_bytes(program), needed_bytes(program)
    online = predicted_online(program.nodes, there, LINKS[he.link]), schedule.bytes_online, schedule.rounds_online
    return Forecast(block_size, *costs, of.ring_degree, of.log_q, *online)


def _fitted(fused: fx.GraphModule, image: tuple[int, int, int], he: HEConfig, profile: Profile) -> PlannedProgram:
    target = replace(target_of(he, profile), margin_bits=he.margin_bits)
    return fit_draft(usual_draft(fused, image, target), target)
