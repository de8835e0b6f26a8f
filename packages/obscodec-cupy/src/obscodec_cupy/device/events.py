"""The order of work on several streams, by CUDA events."""

from typing import Any

import cupy

from obscodec_cupy.device.device import Mark, Order


class EventOrder(Order):
    """Work of one stream at a time, each after what the others did before.

    Nothing is waited for on the stream that was here last, nor while a stream is captured into a graph: there, an event
    of before would be an error, and ``torch.cuda.graph`` has waited for the whole device.
    """

    def __init__(self, number: int) -> None:
        self._device = cupy.cuda.Device(number)
        self._event: Any = None  # made at first use, as making it needs the device
        self._last: Any = None  # the stream, which lives as long as it is kept here

    def __enter__(self) -> None:
        with self._device:
            stream = cupy.cuda.get_current_stream()
            if self._last is not None and self._last != stream and not stream.is_capturing():
                stream.wait_event(self._event)

    def __exit__(self, *error: object) -> None:
        with self._device:
            stream = cupy.cuda.get_current_stream()
            if stream.is_capturing():
                return
            if self._event is None:
                self._event = cupy.cuda.Event(disable_timing=True)
            self._event.record(stream)
            self._last = stream

    def done(self) -> Mark | None:
        """See ``Order.done``."""
        event: Mark | None = self._event
        return event
