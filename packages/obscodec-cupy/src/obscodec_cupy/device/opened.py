"""The devices that are in use, each opened once."""

import os
from functools import cache

from obscodec import BackendUnavailable

from obscodec_cupy.device.device import FORKED, Device
from obscodec_cupy.device.probing import device_number

_USERS: set[int] = set()  # processes that opened a device


def device(name: str) -> Device:
    """The device ``"cuda:1"`` and so on, the same one at every call; ``"cuda"`` is the current one of CUDA.

    Raises:
        SpecError: no such name.
        BackendUnavailable: it can't be used; the text names what is missing. Or this process was forked from one that
            used a device.
    """
    if _USERS and os.getpid() not in _USERS:  # before CUDA is asked for anything
        raise BackendUnavailable(FORKED.format(name))
    return _opened(device_number(name))


@cache
def _opened(number: int) -> Device:
    _USERS.add(os.getpid())
    return Device(number)
