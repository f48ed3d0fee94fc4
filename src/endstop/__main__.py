"""``python -m endstop``."""

from endstop.cli.main import main

main()
