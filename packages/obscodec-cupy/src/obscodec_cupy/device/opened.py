"""The devices that are in use, each opened once."""

from functools import cache

from obscodec_cupy.device.device import Device
from obscodec_cupy.device.probing import device_number


def device(name: str) -> Device:
    """The device ``"cuda:1"`` and so on, the same one at every call; ``"cuda"`` is the current one of CUDA.

    Raises:
        SpecError: no such name.
        BackendUnavailable: it can't be used; the text names what is missing.
    """
    return _opened(device_number(name))


@cache
def _opened(number: int) -> Device:
    from obscodec_cupy.device.gpu import Gpu  # not before it is known that CuPy can be imported

    return Gpu(number)
