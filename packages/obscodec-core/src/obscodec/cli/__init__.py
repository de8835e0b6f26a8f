"""The command ``obscodec``.

It prints what other rooms know. No other room imports it, and it never changes what is stored.
"""

import sys

from obscodec.installing import install_command


def main() -> None:
    """Run the command; if a package is missing, print what to install."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError as error:
        if sys.argv[1:] == ["warm"]:
            from obscodec.cli.warm import run_warm

            sys.exit(run_warm())
        sys.exit(
            f"{error.name} is not installed, which all of the command obscodec but a plain `obscodec warm` needs: "
            + install_command("obscodec[cli]")
        )
    from obscodec.cli.commands import app

    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a snapshot may name anything
    app()
