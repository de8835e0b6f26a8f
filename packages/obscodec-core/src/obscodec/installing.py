"""Installing: the command that brings a missing package, for errors."""

import shlex

_CHECKOUT = "in a checkout of https://github.com/obscodec/obscodec, "
_CORE = "obscodec-core"
# The packages of this project, which are on no index yet, and their folders.
OURS = {"obscodec": _CORE, **{name: name for name in ("obscodec-cupy", "obscodec-sb3", "obscodec-torchrl")}}


def install_command(package: str) -> str:
    """What to type to install a package, which may be named with extras or versions."""
    name, bracket, extras = package.partition("[")
    if name not in OURS:
        return f"pip install {shlex.quote(package)}"
    own = f"packages/{OURS[name]}{bracket}{extras}"
    needed = [own] if OURS[name] == _CORE else [f"packages/{_CORE}", own]
    return f"{_CHECKOUT}pip install {shlex.join(needed)}"
