"""Streams that are truncated, altered or noise: a device says of each what the CPU says, and stays in its memory."""

import numpy as np
import pytest
from atari_frames import frames
from obscodec import CorruptStream, Layout
from obscodec.segments import Segments
from obscodec.varint import encode_varint
from obscodec_cupy.device.device import Device
from obscodec_cupy.device.segments import DeviceSegments
from side_by_side import Pair, fenced


def items(spec: str) -> list[tuple[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    sparse = np.cumsum(rng.random((4, 12)) < 0.15, axis=0, dtype=np.uint8)
    small = [np.array([[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]], np.uint8), sparse, np.zeros((16, 1), np.uint8)]
    if spec == "delta-rle":
        noise = [
            rng.integers(256, size=shape, dtype=np.uint8) for shape in ((2, 9), (4, 3))
        ]  # with and without patches
        return [("delta-rle", item) for item in [*small, *noise]]
    wide = [np.repeat(np.array([1, 258, 3], dtype), [2, 200, 3]) for dtype in ("uint16", "uint32", "uint64")]
    return [("rle", item) for item in [*small, *wide]]


def stream_of(pair: Pair, item: np.ndarray) -> bytes:
    return pair.encode_on_cpu(pair.layout.rows(item[None]))[0].tobytes()


@pytest.mark.parametrize(("spec", "item"), items("rle") + items("delta-rle"), ids=str)
def test_every_prefix_and_every_byte_more_or_changed(device: Device, spec: str, item: np.ndarray) -> None:
    layout = Layout.of(item)
    dictionary = item[:2].tobytes() if spec == "delta-rle" else b""
    pair = Pair(device, spec, layout, dictionary)
    stream = stream_of(pair, item)
    assert pair.compare(stream)
    assert not any(pair.compare(stream[:end]) for end in range(len(stream)))
    assert not any(pair.compare(stream + bytes([byte])) for byte in (0, 1, 2, 127, 128, 255))
    for at in range(len(stream)):
        for byte in {0, 1, 2, 3, 127, 128, 129, 255, stream[at] ^ 1, stream[at] ^ 128}:
            pair.compare(stream[:at] + bytes([byte]) + stream[at + 1 :])


def altered(stream: bytes, rng: np.random.Generator) -> bytes:
    """One of: flipped bits, another byte, a byte more or less, a huge varint, a piece from elsewhere, noise."""
    at = int(rng.integers(len(stream)))
    kind = rng.integers(6)
    if kind == 0:
        return stream[:at] + bytes([stream[at] ^ 1 << rng.integers(8)]) + stream[at + 1 :]
    if kind == 1:
        return stream[:at] + rng.bytes(1) + stream[at + 1 :]
    if kind == 2:
        return stream[:at] + stream[at + 1 :] if rng.random() < 0.5 else stream[:at] + rng.bytes(1) + stream[at:]
    if kind == 3:
        return stream[:at] + encode_varint(int(2.0 ** rng.uniform(7, 62.9))) + stream[at + 1 :]
    if kind == 4:
        begin = int(rng.integers(len(stream)))
        piece = stream[begin : begin + int(rng.integers(1, 20))]
        return stream[:at] + piece + stream[at + len(piece) :]
    return stream[:at] + rng.bytes(len(stream) - at)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["rle", "delta-rle"])
def test_real_streams_that_are_altered(device: Device, spec: str) -> None:
    played = frames("MsPacman", 64, seed=0)
    pair = Pair(device, spec, Layout((4, 84, 84), "uint8"))
    streams = [stream_of(pair, block) for block in played.reshape(16, 4, 84, 84)]
    rng = np.random.default_rng(0)
    n_decoded = 0
    for _ in range(120):
        stream = altered(streams[rng.integers(len(streams))], rng)
        for _ in range(rng.integers(3)):
            stream = altered(stream, rng)
        n_decoded += pair.compare(stream)
    assert n_decoded < 120
    if spec == "delta-rle":
        assert n_decoded > 0  # a literal more or less changes no length


@pytest.mark.parametrize("spec", ["rle", "delta-rle"])
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 7), (2, 300)])
def test_noise(device: Device, spec: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    pair = Pair(device, spec, Layout(shape, "uint8"))
    for _ in range(100):
        pair.compare((rng.integers(0, 256, rng.integers(0, 40)) >> rng.integers(0, 8)).astype(np.uint8).tobytes())


RUNS = [
    (b"", "it ends inside a varint"),
    (b"\x80", "it ends inside a varint"),
    (b"\x80\x00", "a varint is longer than it needs to be, or than 9 bytes"),
    (b"\xff" * 12, "a varint is longer than it needs to be, or than 9 bytes"),
    (b"\5\1\1\1\1\1abcde", "it says that it has more runs than elements or bytes"),
    (b"\xff" * 8 + b"\x7f", "it says that it has more runs than elements or bytes"),
    (b"\2\0\4ab", "a run is empty, or reaches beyond the end of the item"),
    (b"\1\5a", "a run is empty, or reaches beyond the end of the item"),
    (b"\1" + b"\xff" * 8 + b"\x7fa", "a run is empty, or reaches beyond the end of the item"),
    (b"\2\3" + b"\xff" * 8 + b"\x7fab", "a run is empty, or reaches beyond the end of the item"),
    (b"\1" + b"\xff" * 9 + b"\x7fa", "a varint is longer than it needs to be, or than 9 bytes"),
    (b"\1" + b"\xff" * 9 + b"a", "a varint is longer than it needs to be, or than 9 bytes"),
    (b"\1" + b"\xff" * 8 + b"a", "it ends inside a varint"),
    (b"\1\x84\0a", "a varint is longer than it needs to be, or than 9 bytes"),
    (b"\2\1\x81ab", "it ends inside a varint"),
    (b"\1\3a", "its runs end before the item does"),
    (b"\1\4aa", "bytes are missing or left over between its run lengths and its values"),
    (b"\1\4\1\1a", "bytes are missing or left over between its run lengths and its values"),
    (b"\1\3" + b"\xff" * 1500 + b"a", "its runs end before the item does"),
    (b"\1\4\x81a", "bytes are missing or left over between its run lengths and its values"),
    (b"\0", "it has no runs, and more or fewer bytes behind their number than the item"),
    (b"\0abc", "it has no runs, and more or fewer bytes behind their number than the item"),
    (b"\0abcde", "it has no runs, and more or fewer bytes behind their number than the item"),
]


@pytest.mark.parametrize(("stream", "why"), RUNS, ids=[stream[:20].hex(" ") for stream, _ in RUNS])
def test_what_is_said_of_runs(device: Device, stream: bytes, why: str) -> None:
    pair = Pair(device, "rle", Layout((4,), "uint8"))
    assert pair.decode(stream) == f"rle stream of uint8[4] can't be decoded: {why}"
    pair.compare(stream)


def test_what_is_said_of_frames_without_patches(device: Device) -> None:
    pair = Pair(device, "delta-rle", Layout((2, 4), "uint8"))
    few, left = "it has fewer frames than are wanted of it", "it holds more than its frames need"
    for n, why in {0: few, 3: few, 4: few, 7: few, 9: left, 12: left, 60: left}.items():
        stream = b"\x7f" + bytes(range(n))
        assert pair.decode(stream) == f"delta-rle stream of uint8[2, 4] can't be decoded: {why}"
        pair.compare(stream)
    assert pair.decode(b"\x7fabcdefgh") == b"abcdefgh"


@pytest.mark.parametrize("spec", ["rle", "delta-rle"])
@pytest.mark.parametrize("run", [0, 1, 1023, 1024, 1500, 2999])
def test_the_first_bad_run_counts(device: Device, spec: str, run: int) -> None:
    pair = Pair(device, spec, Layout((1, 20_000), "uint8"))
    x = np.zeros(20_000, np.uint8)
    x[3::6] = 1
    stream = bytearray(stream_of(pair, x.reshape(1, -1)))
    head = len(stream) - (6667 if spec == "rle" else 3333) - 3333 * (1 if spec == "rle" else 2)
    assert pair.compare(bytes(stream))
    stream[head + run] = 0
    stream[head + run + 1500] = 0xFF
    stream[head + run + 1501] = 0xFF
    pair.compare(bytes(stream))


OUTSIDE = [(0, 4), (1, 3), (-1, 3), (4, 0), (2**62, 2**62), (0, -1), (0, -(2**63)), (-(2**63), 3)]


@pytest.mark.parametrize("spec", ["rle", "delta-rle"])
@pytest.mark.parametrize(("offset", "length"), OUTSIDE)
@pytest.mark.parametrize("first", [b"\1\4\7", b"\0\1\0"])  # of each codec, the other is bad in another way
def test_streams_that_lie_outside_of_their_buffer(
    device: Device, spec: str, offset: int, length: int, first: bytes
) -> None:
    pair = Pair(device, spec, Layout((1, 4), "uint8"))
    buffer = np.frombuffer(first, np.uint8)
    offsets, lengths = np.array([0, offset]), np.array([3, length])
    with pytest.raises(CorruptStream) as expected:
        pair.cpu.decode_batch(Segments((buffer,), np.zeros(2, np.int64), offsets, lengths), np.empty((2, 4), np.uint8))
    placed = DeviceSegments(fenced(device, buffer), device.upload(offsets), device.upload(lengths), device)
    status = pair.cuda.decode_batch(placed, device.empty((2, 4), np.uint8))
    with pytest.raises(CorruptStream) as caught:
        status.check()
    assert str(caught.value) == str(expected.value)


def test_the_first_bad_stream_of_a_batch_counts(device: Device) -> None:
    pair = Pair(device, "rle", Layout((4,), "uint8"))
    good, short, sum_ = b"\1\4a", b"\1\x84", b"\1\3a"
    for batch in ([good, short, sum_], [good, sum_, good, short], [short, sum_] * 20):
        streams = Segments.of(batch)
        with pytest.raises(CorruptStream) as expected:
            pair.cpu.decode_batch(streams, np.empty((len(batch), 4), np.uint8))
        out = device.empty((len(batch), 4), np.uint8)
        status = pair.cuda.decode_batch(DeviceSegments.upload(device, streams), out)
        with pytest.raises(CorruptStream) as caught:
            status.check()
        assert str(caught.value) == str(expected.value)
