"""A dry run of the whole chain before training: the verbs' changes and refusals, and an image's cost.

Everything runs on copies. Costs are predicted from shapes: plans depend on these, parameters on the values too. Those
of an untrained network say nothing of the trained one, so all values have the usual size for 8 bits. ``compile``
chooses the real parameters, from images.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from torch import Tensor, fx, nn

from privcirnet.blocksize_search.latency import layer_shapes
from privcirnet.config import HEConfig
from privcirnet.data.dataset import check_classes
from privcirnet.errors import RuleError, listed
from privcirnet.he.planning.network_links import LINKS, NetworkLink
from privcirnet.he.planning.plan_program import PlannedProgram, fit_draft, predicted_online, predicted_seconds, scaled
from privcirnet.he.planning.profile import UNITS, Profile
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.nn.checks import (
    check_finite,
    check_images,
    check_module,
    image_of,
    logits_of_one,
    understood,
    value_of_one,
)
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.materialize import with_plain_weights
from privcirnet.nn.supported_modules import is_polynomial
from privcirnet.passes.convert import circulant_, uniform_sizes
from privcirnet.passes.fuse import fuse, fuse_at
from privcirnet.passes.lower import check_operations, usual_draft
from privcirnet.passes.surgery import polynomial_
from privcirnet.passes.surgery.edit import TRAIN, Replacement
from privcirnet.passes.surgery.polynomial import check_activation
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


_T = TypeVar("_T")


@dataclass(frozen=True)
class Refusal:
    """A refusal of a verb.

    Attributes:
        error: error with rule, value (with the layer) and remedy.
    """

    verb: str
    error: RuleError

    def __str__(self) -> str:
        """Return the refusal in one line."""
        return f"{self.verb} refuses: {self.error}"


@dataclass(frozen=True)
class Check:
    """The result of a dry run; printed, a table.

    Attributes:
        changes: changes that ``compile`` will make on a copy, or ``polynomial_``.
        refusals: refusals of all verbs, one for each layer.
        forecasts: costs of an encrypted image, with dense weights and with circulant ones; none if a verb refuses,
            other than ``fit``, in whose place a loop of your own may train.
        profile: operation times behind the seconds.
        verb: verb that makes the changes.
    """

    changes: tuple[Replacement, ...]
    refusals: tuple[Refusal, ...]
    forecasts: tuple[Forecast, ...]
    profile: Profile
    verb: str

    def __str__(self) -> str:
        """Return changes, refusals and predictions, a line each."""
        changes = [f"  {change}" for change in self.changes] or ["  nothing"]
        lines = [f"{self.verb} replaces:", *changes] if not self._unchanged else []
        lines += [str(refusal) for refusal in self.refusals] or [
            "no step refuses the network: it can be trained, compressed and run encrypted"
        ]
        if self.forecasts:
            unit = UNITS if self.profile.counted else "seconds"
            head = ("block size", unit, "MB sent", "rounds", f"online {unit}", "MB", "rounds")
            rows = [(*head, "GB of weights", "GB of memory", "n", "log q")]
            rows += [_row(forecast) for forecast in self.forecasts]
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            lines.append("an encrypted image, predicted from the network's shapes:")
            lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join(lines)

    @property
    def _unchanged(self) -> bool:
        return any(refusal.verb == self.verb for refusal in self.refusals) and not self.changes


def _row(of: Forecast) -> tuple[str, ...]:
    gigabytes = (f"{size / 1e9:.2f}" for size in (of.weights, of.memory))
    phases = ((of.seconds, of.sent, of.rounds), (of.online, of.online_sent, of.online_rounds))
    cells = (cell for s, sent, rounds in phases for cell in (f"{s:.3g}", f"{sent / 1e6:.3g}", str(rounds)))
    return str(of.block_size), *cells, *gigabytes, str(of.ring_degree), str(of.log_q)


def check(
    model: nn.Module,
    images: Tensor,
    he: HEConfig,
    profile: Profile,
    activation: str | Mapping[str, str] = "own",
    uniform: int = 4,
) -> Check:
    """Return the result of a dry run on copies of a network.

    Args:
        model: network of any kind, trained or not; left as it was.
        images: images (N, C, H, W); only the first one is used.
        uniform: block size of the circulant network, a power of two; a network that has blocks keeps them.

    Raises:
        RuleError: the network or the images are none, or the activation is unknown.
    """
    check_module(model)
    check_images(model, images)
    check_activation(activation)
    network, image = copy.deepcopy(with_plain_weights(model)).cpu().eval(), images[:1].cpu()
    value_of_one(network, image)
    refusals = list[Refusal]()
    verb = "compile" if activation == "own" else "polynomial_"
    _tried(refusals, verb, lambda: check_finite(network))
    if refusals:
        return Check((), tuple(refusals), (), profile, verb)
    changes = _tried(refusals, verb, lambda: polynomial_(network, image, activation))
    _tried(refusals, "fit", lambda: check_classes(logits_of_one(network, image).shape[1]))
    _tried(refusals, "search", lambda: layer_shapes(network, image))
    forecasts, largest = list[Forecast](), max(map(block_size_of, network.modules()))
    for b in (largest,) if largest > 1 else dict.fromkeys((1, uniform)):
        predicted = _forecast(refusals, network, image, he, profile, b) if changes is not None else None
        forecasts += [predicted] if predicted else []
    runs = all(refusal.verb == "fit" for refusal in refusals)
    return Check(changes or (), tuple(refusals), tuple(forecasts) if runs else (), profile, verb)


def left_to_replace(model: nn.Module, image: Tensor) -> str:
    """Return in one line the obstacles between a network and its encrypted form; "" if there are none.

    Args:
        model: network before it is quantized; left as it was.
        image: image (1, C, H, W).
    """
    network = copy.deepcopy(model).cpu().eval()
    try:
        changes = polynomial_(network, image.cpu())
    except RuleError as error:
        return (
            ""
            if _runs_encrypted(model, image, "refused")
            else f"no encrypted form, not even by recipe=replace: {error}"
        )
    remaining = [f"{change.path} ({change.before})" for change in changes if change.effect == TRAIN]
    if not remaining:
        return ""
    replace = "train.py recipe=replace activation=aespa"
    if _runs_encrypted(model, image, "exact"):
        faster = f"polynomials are faster: {replace} before recipe=qat"
        return f"two-party computation will run {listed(remaining)} as they are; {faster}"
    return f"not encrypted as they are: {listed(remaining)}; {replace} is missing before recipe=qat"


def _runs_encrypted(model: nn.Module, image: Tensor, nonlinear: str) -> bool:
    try:
        check_operations(fuse_at(model, image), nonlinear)
    except RuleError:
        return False
    return True


def _tried(refusals: list[Refusal], verb: str, run: Callable[[], _T]) -> _T | None:
    """Return a step's result; None if it refuses, which is noted unless another verb has refused alike."""
    try:
        with understood(verb):
            return run()
    except RuleError as error:
        reported = {(str(refusal.error.rule), str(refusal.error.got)) for refusal in refusals}
        refusals += [
            Refusal(verb, layer_error)
            for layer_error in error.each
            if (layer_error.rule, str(layer_error.got)) not in reported
        ]
        return None


def _forecast(
    refusals: list[Refusal], network: nn.Module, image: Tensor, he: HEConfig, profile: Profile, b: int
) -> Forecast | None:
    """Return an image's cost with blocks of b wherever they fit, or with its own; None if a verb refuses."""
    blocks = copy.deepcopy(network)
    circulant = any(block_size_of(module) > 1 for module in blocks.modules())
    sizes = {} if circulant else {name: size for name, size in uniform_sizes(blocks, b).items() if size > 1}
    if sizes and _tried(refusals, "circulant_", lambda: circulant_(blocks, sizes)) is None:
        return None
    fused = _tried(refusals, "fuse", lambda: fuse(blocks))
    if fused is None:
        return None
    return _tried(refusals, "compile", lambda: forecast(fused, image_of(image.shape[1:]), he, profile, b))
