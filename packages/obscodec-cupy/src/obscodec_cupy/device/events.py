"""Moments of streams, and the order of work on several, by CUDA events."""

from typing import Any

import cupy

from obscodec_cupy.device.device import Mark, Order


class EventMark(Mark):
    """An event on the current stream of the current device."""

    def __init__(self) -> None:
        self._event = cupy.cuda.Event(disable_timing=True)
        self._event.record(cupy.cuda.get_current_stream())

    def passed(self) -> bool:
        """See ``Mark.passed``."""
        return bool(self._event.done)

    def wait(self) -> None:
        """See ``Mark.wait``."""
        self._event.synchronize()


class EventOrder(Order):
    """Work of one stream at a time, each after what the others did before.

    Nothing is waited for on the stream that was here last, nor while a stream is captured into a graph: there, an event
    of before would be an error, and ``torch.cuda.graph`` has waited for the whole device.
    """

    def __init__(self, number: int) -> None:
        self._device = cupy.cuda.Device(number)
        self._done: Any = None  # made at first use, as making it needs the device
        self._last: Any = None  # the stream, which lives as long as it is kept here

    def __enter__(self) -> None:
        with self._device:
            stream = cupy.cuda.get_current_stream()
            if self._last is not None and self._last != stream and not stream.is_capturing():
                stream.wait_event(self._done)

    def __exit__(self, *error: object) -> None:
        with self._device:
            stream = cupy.cuda.get_current_stream()
            if stream.is_capturing():
                return
            if self._done is None:
                self._done = cupy.cuda.Event(disable_timing=True)
            self._done.record(stream)
            self._last = stream
