"""`python -m ostinato.cli`: the `ostinato` command without its script."""

from ostinato.cli import main

main()
