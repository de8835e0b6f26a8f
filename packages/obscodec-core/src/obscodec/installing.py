"""Installing: packages that obscodec works without, and the command that brings a missing one."""

import shlex
from importlib import import_module
from typing import Any

from obscodec.errors import MissingPackage

_GIT = "git+https://github.com/obscodec/obscodec#subdirectory=packages"
_CORE = "obscodec"
# The packages of this project, which are on no index yet, and their folders.
OURS = {_CORE: "obscodec-core", **{name: name for name in ("obscodec-cupy", "obscodec-sb3", "obscodec-torchrl")}}
_NAMES = {"PIL": "pillow", "ale_py": "ale-py", "cv2": "opencv-python-headless"}  # of packages, by module


def install_command(package: str) -> str:
    """What to type to install a package, which may be named with extras or versions."""
    name = package.partition("[")[0]
    if name not in OURS:
        return f"pip install {shlex.quote(package)}"
    named = {_CORE: _CORE, name: package}  # the others need the core
    return " ".join(["pip install", *(f'"{of} @ {_GIT}/{OURS[key]}"' for key, of in named.items())])


def optional(name: str, needs: str = "this source needs") -> Any:
    """A module of an optional package; MissingPackage says what ``needs`` it, and how to install it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or name).partition(".")[0]
        raise MissingPackage(f"{needs} {missing}: {install_command(_NAMES.get(missing, missing))}") from None
