"""Train a dense network, fine-tune it with circulant weights, or train its 8-bit version. `python train.py --help`."""

from privcirnet.cli.train import main

if __name__ == "__main__":
    main()
