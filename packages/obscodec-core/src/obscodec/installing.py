"""Installing: the command that brings a missing package, for errors."""

import shlex

_GIT = "git+https://github.com/obscodec/obscodec#subdirectory=packages"
_CORE = "obscodec"
# The packages of this project, which are on no index yet, and their folders.
OURS = {_CORE: "obscodec-core", **{name: name for name in ("obscodec-cupy", "obscodec-sb3", "obscodec-torchrl")}}


def install_command(package: str) -> str:
    """What to type to install a package, which may be named with extras or versions."""
    name = package.partition("[")[0]
    if name not in OURS:
        return f"pip install {shlex.quote(package)}"
    named = {_CORE: _CORE, name: package}  # the others need the core
    return " ".join(["pip install", *(f'"{of} @ {_GIT}/{OURS[key]}"' for key, of in named.items())])
