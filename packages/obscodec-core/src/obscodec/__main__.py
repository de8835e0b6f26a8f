"""``python -m obscodec``: the command ``obscodec``."""

from obscodec.cli import main

if __name__ == "__main__":
    main()
