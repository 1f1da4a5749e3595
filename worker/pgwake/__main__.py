"""python -m pgwake: the same as the command pgwake."""

from pgwake.cli import main

main()
