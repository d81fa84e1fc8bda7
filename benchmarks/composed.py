"""Predicted gain from composed layers: MobileNetV2's project and the next expand as one layer with weights W2 W1.

python benchmarks/composed.py --profile outputs/export/profile.json [--block-size 8] [--plain-bits 54]

PrivCirNet (section 3.4, figure 6b) runs both layers of such a pair in one round. Here that is one product: W2 W1 is
circulant again where both have the same b. With a residual r the pair computes y1 = W1 x + r and y2 = W2 y1: one layer
from (x, r) to y2, and to y1 as well where a later residual reads it. W2 W1 is requantised to 8 bits, so that y2 is no
longer than the expand's own result, t stays, and only the round in between is saved: one request, one reply. What it
costs are products: 6C x 6C' blocks in place of 6C x C and C x 6C'. Accuracy is not looked at.

Each pair is planned both ways, at the set that is fastest for the network as it is; the planner would take the better.
"""

import argparse
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from efficient_networks import best, network_of

from privcirnet.artifact import read_profile
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.planning.chooser import SETS, SHORT_REPLIES
from privcirnet.he.planning.cost import linear_cost
from privcirnet.he.planning.fit import planned_layer, scaled
from privcirnet.he.planning.profile import LINKS, Link, Profile


class Pair(NamedTuple):
    """A project and the expand behind it.

    Attributes:
        project: its shape.
        expand: its shape.
        residual: whether the project's result gets the block's input added.
        read_again: whether the sum is the next block's residual.
    """

    project: LinearShape
    expand: LinearShape
    residual: bool
    read_again: bool

    @property
    def composed(self) -> LinearShape:
        """The shape of one layer for both."""
        between = self.project.out_channels
        inputs = self.project.in_channels + between * self.residual
        return replace(
            self.expand, in_channels=inputs, out_channels=self.expand.out_channels + between * self.read_again
        )


def pairs_of(layers: dict[str, tuple[LinearShape, int]]) -> list[Pair]:
    """Return MobileNetV2's pairs in order; the last 1 x 1 convolution counts as an expand."""
    names = [name for name in layers if name.endswith((".project", ".expand")) or name == "last"]
    shapes = {name: layers[name][0] for name in names}
    found: list[Pair] = []
    for first, second in pairwise(names):
        if first.endswith(".project") and not second.endswith(".project"):
            found.append(Pair(shapes[first], shapes[second], _residual(first, shapes), False))
    return [pair._replace(read_again=_kept(pair, after)) for pair, after in zip(found, [*found[1:], None], strict=True)]


def _residual(project: str, shapes: dict[str, LinearShape]) -> bool:
    expand = shapes.get(project.replace("project", "expand"))
    own = shapes[project]
    return expand is not None and (expand.in_channels, expand.height) == (own.out_channels, own.height)


def _kept(pair: Pair, after: Pair | None) -> bool:
    """Whether the next block adds this pair's sum to its own result."""
    return after is not None and after.residual


def seconds(shape: LinearShape, b: int, profile: Profile, link: Link) -> float:
    """Return the predicted seconds of a layer's best plan."""
    return linear_cost(planned_layer(shape, b, profile, link), profile, link).total


def main() -> None:
    """Print a line for each link, and one for each pair that pays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", type=Path, required=True, help="profile.json of search.py or export.py")
    parser.add_argument("--block-size", type=int, default=8)
    parser.add_argument("--plain-bits", type=int, default=54, help="bits of t")
    given = parser.parse_args()
    network, b = network_of("mobilenetv2_cifar", given.block_size), given.block_size
    profile, pairs = replace(read_profile(given.profile), plain_bits=given.plain_bits), pairs_of(network.layers)
    for name in ("local", "wan"):
        link = LINKS[name]
        sets = SETS + SHORT_REPLIES if link.counts else SETS
        whole = best(network, profile, link, "spectral", sets, given.plain_bits)
        at = scaled(profile, whole.set)
        apart = [seconds(p.project, b, at, link) + seconds(p.expand, b, at, link) for p in pairs]
        composed = [seconds(p.composed, b, at, link) for p in pairs]
        taken = [min(both) for both in zip(apart, composed, strict=True)]
        print(f"{name}, {whole.set}: network {whole.seconds:.2f} s; {len(pairs)} pairs apart {sum(apart):.2f} s,")
        print(f"  all composed {sum(composed):.2f} s, where it pays {sum(taken):.2f} s")
        for pair, one, other in zip(pairs, apart, composed, strict=True):
            p, e = pair.project, pair.expand
            kind = ("with a residual" if pair.residual else "") + (", y1 kept" if pair.read_again else "")
            print(f"  {p.in_channels}-{p.out_channels}-{e.out_channels} at {p.height}: {one:.3f} {other:.3f} {kind}")


if __name__ == "__main__":
    main()
