"""Which codecs run on a device."""

from typing import Final

from obscodec import SpecError
from obscodec.codecs import Codec

from obscodec_cupy.codecs.codec import CudaCodec
from obscodec_cupy.codecs.delta_rle import CudaDeltaRle
from obscodec_cupy.codecs.rle import CudaRle
from obscodec_cupy.device.device import Device

_CODECS: Final[dict[str, type[CudaCodec]]] = {"rle": CudaRle, "delta-rle": CudaDeltaRle}


def on_device(cpu: Codec, device: Device) -> CudaCodec:
    """The codec on ``device`` that has the same streams as one of the CPU.

    Raises:
        SpecError: there is none.
        ShapeError: its streams can be too long for a device.
    """
    if cpu.spec not in _CODECS:
        raise SpecError(
            f"{cpu.spec!r} does not run on {device.name}, there are {', '.join(_CODECS)}: stores with "
            f"device={device.name!r} decode others on the CPU and upload what they hold"
        )
    return _CODECS[cpu.spec](cpu, device)
