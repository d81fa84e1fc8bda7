"""ResNet-50 with its own ReLUs at 224 x 224, encrypted: torchvision's network, random weights, blocks of one size.

python benchmarks/resnet50.py
python benchmarks/resnet50.py --block 8 --weights-gb 4

Statistics of batch norms and clips are those of four images of noise. One image is run, both parties in this process;
every logit must be the quantized network's.
"""

import argparse
import time

import torch
import torchvision

import privcirnet as pc
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.he.system.process import keep_freed_memory, peak_bytes
from privcirnet.passes.convert import uniform_sizes


def main() -> None:
    """Compile, say what it takes, and run an image."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--block", type=int, default=4)
    parser.add_argument("--weights-gb", type=float, default=1.0, help="of encoded weights that stay in memory")
    given = parser.parse_args()
    keep_freed_memory()
    torch.manual_seed(0)
    network, images = torchvision.models.resnet50(), torch.randn(4, 3, 224, 224)
    with torch.no_grad():
        network.train()(images)
    pc.polynomial_(network.eval(), images, activation="own")
    pc.circulant_(network, uniform_sizes(network, given.block))
    quantized, began = pc.quantize(network, images), time.perf_counter()
    program = pc.compile(quantized, images, rehearsed_images=1)
    online = schedule_of(program.integer).bytes_online / 1e6, schedule_of(program.integer).rounds_online
    print(program, f"compiled in {time.perf_counter() - began:.0f} s", sep="\n")
    began, worked = time.perf_counter(), time.process_time()
    logits = program(images[:1], weights_gb=given.weights_gb)
    taken = time.perf_counter() - began, time.process_time() - worked, peak_bytes() / 1e9
    print(
        "an image: {:.0f} s, {:.0f} s of processors, {:.1f} GB".format(*taken),
        "online {:.0f} MB, {} rounds".format(*online),
    )
    if not torch.equal(logits, quantized(images[:1]).float()):
        raise SystemExit("logits differ from the quantized network's")


if __name__ == "__main__":
    main()
