"""`python -m kbserver.cli`: the same as the `kbcore` command."""

from kbserver.cli import main

main()
