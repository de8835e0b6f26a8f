"""The command ``obscodec``."""

import sys


def main() -> None:
    """Run the command; says what to install if that is missing."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError as error:
        if sys.argv[1:] == ["warm"]:
            from obscodec.cli.warm import run_warm

            sys.exit(run_warm())
        sys.exit(
            f"{error.name} is not installed, which all of the command obscodec but a plain `obscodec warm` needs: "
            'pip install "obscodec[cli]"'
        )
    from obscodec.cli.commands import app

    app()
