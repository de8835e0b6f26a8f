"""``python -m obscodec``: the command ``obscodec``."""

from obscodec.cli import main

main()
