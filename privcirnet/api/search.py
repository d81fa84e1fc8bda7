"""Block sizes for any network under a latency budget, and a dry run of all verbs before anything is trained."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from privcirnet.api.settings import bars, configured, encryption, named, profile_for, verb
from privcirnet.blocksize_search.latency import layer_shapes
from privcirnet.config import CompileConfig, HEConfig, RecipeConfig, SearchConfig, SearchRunConfig
from privcirnet.data.dataset import OwnImages, Pairs
from privcirnet.errors import RuleError
from privcirnet.he.planning.profile import Profile
from privcirnet.nn.checks import check_images, check_module, check_weights, logits_of_one
from privcirnet.nn.materialize import with_plain_weights
from privcirnet.passes.multihead import with_attention_layers
from privcirnet.passes.surgery import exact_copy
from privcirnet.runs.check import Check
from privcirnet.runs.check import check as check_network
from privcirnet.runs.search import SearchResult, search_in
from privcirnet.train.network import weighted_layers
from privcirnet.train.sensitivities import check_trained


@verb
def search(
    model: nn.Module,
    data: Pairs,
    config: SearchConfig | None = None,
    *,
    profile: Profile | str | Path = "calibrate",
    link: str = "local",
    progress: bool = True,
    **settings: Any,
) -> SearchResult:
    """Choose a block size for every layer, for the least loss within a latency budget (PrivCirNet, Section 3.3).

    Args:
        model: trained, dense network; left as it was. With ``activations`` those of functions, and of modules that run
            more than once, have names of their own, which :func:`privcirnet.polynomial_` knows too.
        data: its training data: (images (N, C, H, W), labels (N,)), or a DataLoader.
        config: budget and choices.
        profile: operation times: measured once a process ("calibrate", some seconds), a file's, "counted" for the
            papers' units, or that of an earlier search.
        link: "local", "lan", "wan44" or "wan": the network between client and server.
        progress: whether bars are shown.
        settings: fields of ``config`` by name, as ``budget=0.02`` in seconds or ``budget=pc.uniform(4)``.

    Returns:
        The plan: ``block_sizes`` for :func:`privcirnet.circulant_`, the ``profile`` for :func:`privcirnet.compile`.
        Printed, it is a table.

    Raises:
        RuleError: a setting is out of range, the budget is out of reach, images or labels do not fit the network, or
            its weights are not finite or shared.
    """
    check_weights(model)
    model = with_attention_layers(with_plain_weights(model))
    he = HEConfig(profile=named(profile), link=link)
    config = configured("search", SearchConfig, config, settings)
    fields: dict[str, Any] = vars(config) | {"recipe": RecipeConfig(**asdict(config.recipe))}
    run = SearchRunConfig(**fields, he=he)
    images, bar = OwnImages(data, None, partial(logits_of_one, model)), bars(progress)
    model = _priced(model, next(images.sampled(1, 1))[0], bool(config.activations))
    check_trained(model, images, run.sensitivity, run.samples)
    return search_in(model, images, run, profile_for(profile, he, bar), bar)


def _priced(model: nn.Module, image: Tensor, activations: bool) -> nn.Module:
    """Return the form of a network that has prices: itself, or its exact copy.

    Args:
        image: (1, C, H, W).
        activations: whether they are priced too, each as a module.
    """
    image = image.to(next(model.parameters()).device)
    if activations:
        return exact_copy(model, image)
    try:
        layer_shapes(model, image)
    except RuleError:
        with suppress(RuleError):
            exact = exact_copy(model, image)
            if weighted_layers(exact).keys() == weighted_layers(model).keys():  # a plan names them
                return exact
        raise
    return model


@verb
def check(  # noqa: PLR0913
    model: nn.Module,
    images: Tensor,
    config: CompileConfig | None = None,
    *,
    activation: str | Mapping[str, str] = "own",
    block_size: int = 4,
    profile: Profile | str | Path = "calibrate",
    progress: bool = True,
    **settings: Any,
) -> Check:
    """Report the changes and refusals of the verbs, layer by layer, and the cost of an encrypted image.

    It is a dry run on copies, some seconds long. Costs are predicted from shapes: values, which parameters depend on,
    are not known before training: proved bounds may take a wider modulus, and some per cent more.

    Args:
        model: any network, trained or not; left as it was.
        images: some as the network reads them, (N, C, H, W) or (N, F); only their size matters.
        config: settings of its compilation.
        activation: "own", the road of :func:`privcirnet.compile`: activations stay and run exactly; or an
            activation that :func:`privcirnet.polynomial_` puts in their place.
        block_size: block size of the network whose costs are shown beside the dense one's; a network that is circulant
            has one row.
        profile: operation times, as for :func:`privcirnet.search`.
        progress: whether bars are shown.
        settings: fields of ``config`` by name, as ``link="lan"``.

    Returns:
        ``changes``, ``refusals`` and ``forecasts``: seconds, bytes and memory. Printed, a table.

    Raises:
        RuleError: the network or the images are none, or a setting is out of range.
    """
    check_module(model)
    check_images(model, images)
    he, bar = encryption("check", config, settings, profile), bars(progress)
    times = profile_for(profile, he, bar)
    with bar("checking the network", 0):
        return check_network(model, images, he, times, activation, block_size)
