"""python -m pgwake: the same as the command pgwake."""

from pgwake.cli.main import main

main()
