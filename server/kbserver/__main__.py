"""`python -m kbserver`: the same as `kbcore serve`, with its options."""

import sys

from kbserver.cli import main

if __name__ == "__main__":
    main(["serve", *sys.argv[1:]])
