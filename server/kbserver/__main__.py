"""`python -m kbserver`: the same as `kbcore serve`."""

from kbserver.cli import main

if __name__ == "__main__":
    main(["serve"])
