"""Turn a quantized network into a program folder for encrypted inference. `python export.py --help`."""

from privcirnet.cli.export import main

if __name__ == "__main__":
    main()
