"""What codecs of a device are besides their streams: values, what they refuse, which stream they work on."""

import pickle
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from cuda_on_cpu.device import SimulatedDevice
from cuda_on_cpu.fixtures import on_new_streams
from obscodec import CorruptStream, DTypeError, Layout, ShapeError, SpecError, codec
from obscodec.segments import Segments
from obscodec_cupy.codecs.codec import EXPLANATIONS, CudaCodec
from obscodec_cupy.device.device import Device
from obscodec_cupy.device.segments import DeviceSegments
from obscodec_cupy.device.sources import STATUSES

FOUR = Layout((2, 2), "uint8")


Make = Callable[[Device], CudaCodec]


def rle_of(device: Device, layout: Layout = FOUR) -> CudaCodec:
    return CudaCodec(codec("rle", layout), device)


def delta_of(device: Device, layout: Layout = FOUR) -> CudaCodec:
    return CudaCodec(codec("delta-rle", layout), device)


@pytest.mark.parametrize("spec", ["rle", "delta-rle"])
def test_a_codec_is_a_value(cuda: str, spec: str) -> None:
    made = codec(spec, FOUR, device=cuda)
    assert made == codec(spec, Layout((2, 2), "uint8"), device=cuda)
    assert hash(made) == hash(codec(spec, FOUR, device=cuda))
    assert made != codec(spec, Layout((2, 3), "uint8"), device=cuda)
    assert made != codec("delta-rle" if spec == "rle" else "rle", FOUR, device=cuda)
    assert pickle.loads(pickle.dumps(made)) == made
    assert (made.spec, made.layout, made.cpu.format) == (spec, FOUR, codec(spec, FOUR).format)
    assert made.device.startswith("cuda:")
    assert made.bound() == codec(spec, FOUR).bound()
    assert repr(made) == f"{type(made).__name__}(cpu={codec(spec, FOUR)!r}, device={made.device!r})"


def test_a_dictionary_is_part_of_the_value(cuda: str) -> None:
    plain = codec("delta-rle", FOUR, device=cuda)
    fitted = plain.with_dictionary(b"abcd")
    assert (plain.cpu.dictionary, fitted.cpu.dictionary) == (b"", b"abcd")
    assert fitted != plain
    assert fitted == plain.with_dictionary(b"abcd")
    rebuilt = pickle.loads(pickle.dumps(fitted))
    assert rebuilt == fitted
    with pytest.raises(SpecError, match="takes a dictionary of whole frames of 2 bytes, got 3 bytes"):
        plain.with_dictionary(b"abc")
    with pytest.raises(SpecError, match="rle has no dictionaries, got one of 1 bytes"):
        codec("rle", FOUR, device=cuda).with_dictionary(b"a")


def test_a_rebuilt_codec_has_its_reference_frames(cuda: str) -> None:
    layout, references = Layout((2, 8), "uint8"), b"abcdefghABCDEFGH"
    made = pickle.loads(pickle.dumps(codec("delta-rle", layout, device=cuda).with_dictionary(references)))
    streams = made.encode_batch(made.on.upload(np.frombuffer(b"ABCDEFGHABCDExGH", np.uint8).reshape(1, 2, 8)))
    assert bytes(streams.download()[0]) == b"\x02\x04\x00\x01\x05\x01x"


@pytest.mark.parametrize("spec", ["zstd:3", "raw", "delta-rle|zstd:3", "shuffle|rle"])
def test_other_codecs_do_not_run_on_a_device(cuda: str, spec: str) -> None:
    name = codec("rle", FOUR, device=cuda).device
    with pytest.raises(SpecError) as caught:
        codec(spec, FOUR, device=cuda)
    assert str(caught.value) == (
        f"{spec!r} does not run on {name}, there are rle, delta-rle: stores with device={name!r} decode others on the "
        "CPU and upload what they hold"
    )


def test_items_that_are_too_large(device: Device) -> None:
    with pytest.raises(ShapeError, match="a stream on a device has less than 2 GiB, one of rle of uint8"):
        rle_of(device, Layout((2**31 - 1,), "uint8"))
    with pytest.raises(ShapeError, match="frames of at most"):
        delta_of(device, Layout((1, 2**30 + 1), "uint8"))


def test_each_status_that_kernels_report_is_explained() -> None:
    assert len(set(STATUSES.values())) == len(STATUSES)
    assert set(STATUSES.values()) == {STATUSES["OK"], STATUSES["BAD_ID"], *EXPLANATIONS}


@pytest.mark.parametrize("make", [rle_of, delta_of])
def test_arrays_of_the_host_are_refused(device: Device, make: Make) -> None:
    tested = make(device)
    host = np.zeros((1, 2, 2), np.uint8)
    there = device.upload(host)
    streams = tested.encode_batch(there)
    in_host = DeviceSegments(host.reshape(-1), streams.offsets, streams.lengths, device)
    for refused in (
        lambda: tested.encode_batch(host),
        lambda: tested.encode_batch(there, out=np.empty(100, np.uint8)),
        lambda: tested.encode_batch([1, 2]),
        lambda: tested.decode_batch(streams, host),
        lambda: tested.decode_batch(in_host, there),
    ):
        with pytest.raises(DTypeError, match=f"expected an array on {device.name}"):
            refused()


def test_arrays_that_do_not_fit(device: Device) -> None:
    tested = rle_of(device, Layout((2, 2), "float32"))
    zeros = device.zeros((3, 2, 2), np.float32)
    streams = tested.encode_batch(zeros)
    with pytest.raises(ShapeError, match=r"items have shape \(n, 2, 2\), got \(3, 2\)"):
        tested.encode_batch(device.zeros((3, 2), np.float32))
    with pytest.raises(DTypeError, match="items have dtype float32, got int32"):
        tested.encode_batch(device.zeros((3, 2, 2), np.int32))
    with pytest.raises(ShapeError, match="rows has gaps, or its axes are in another order in memory"):
        tested.encode_batch(device.zeros((3, 2, 4), np.float32)[:, :, :2])
    with pytest.raises(ShapeError, match="3 streams of rle need up to 51 bytes, out has 50"):
        tested.encode_batch(zeros, out=device.empty((50,), np.uint8))
    with pytest.raises(DTypeError, match="out has dtype uint8, got int8"):
        tested.encode_batch(zeros, out=device.empty((63,), np.int8))
    with pytest.raises(ShapeError, match="3 streams decode into 3 items, got 2"):
        tested.decode_batch(streams, zeros[:2])
    with pytest.raises(ShapeError, match="out has gaps, or its axes are in another order in memory"):
        tested.decode_batch(streams, device.zeros((3, 2, 4), np.float32)[:, :, :2])


def test_streams_that_do_not_fit(device: Device) -> None:
    tested, out = rle_of(device), device.zeros((3, 2, 2), np.uint8)
    streams = tested.encode_batch(out)
    n_launches = getattr(device, "n_launches", 0)
    with pytest.raises(DTypeError, match="offsets has dtype int64, got int32"):
        tested.decode_batch(replace(streams, offsets=device.zeros((3,), np.int32)), out)
    with pytest.raises(DTypeError, match="buffer has dtype uint8, got int8"):
        tested.decode_batch(replace(streams, buffer=device.zeros((3,), np.int8)), out)
    with pytest.raises(ShapeError, match="lengths has gaps"):
        tested.decode_batch(replace(streams, lengths=device.zeros((6,), np.int64)[::2]), out)
    with pytest.raises(ShapeError, match=r"offsets has shape \(3,\), got \(2,\)"):
        tested.decode_batch(replace(streams, offsets=streams.offsets[:2]), out)
    assert getattr(device, "n_launches", 0) == n_launches


@pytest.mark.parametrize("make", [rle_of, delta_of])
def test_streams_are_written_where_they_are_asked_for(device: Device, make: Make) -> None:
    tested = make(device)
    out = device.zeros((2 * tested.bound() + 5,), np.uint8)
    streams = tested.encode_batch(device.upload(np.array([[1, 1, 1, 1], [0, 0, 0, 2]], np.uint8)), out=out)
    expected = codec(tested.spec, FOUR).encode_batch(
        np.array([[1, 1, 1, 1], [0, 0, 0, 2]], np.uint8), np.empty(2 * tested.bound(), np.uint8)
    )
    written = device.download(out)
    assert written[: expected.nbytes].tobytes() == b"".join(map(bytes, expected))
    assert not written[expected.nbytes :].any()
    assert len(streams) == 2


@pytest.mark.parametrize("make", [rle_of, delta_of])
def test_a_batch_without_items(device: Device, make: Make) -> None:
    tested = make(device)
    none = device.empty((0, 2, 2), np.uint8)
    streams = tested.encode_batch(none)
    assert len(streams.download()) == 0
    tested.decode_batch(streams, none).check()


def test_segments_go_there_and_back(device: Device) -> None:
    streams = [b"abc", b"", b"de"]
    one, two = np.frombuffer(b"xdeabc", np.uint8), np.zeros(0, np.uint8)
    apart = Segments((one, two), np.array([0, 1, 0]), np.array([3, 0, 1]), np.array([3, 0, 2]))
    for segments in (Segments.of(streams), apart):
        found = DeviceSegments.upload(device, segments)
        assert len(found) == 3
        assert [bytes(s) for s in found.download()] == streams
    outside = Segments((one,), np.zeros(1, np.int64), np.array([4]), np.array([3]))
    with pytest.raises(CorruptStream, match="a stream lies outside of its buffer"):
        DeviceSegments.upload(device, outside)


@pytest.mark.parametrize("make", [rle_of, delta_of])
def test_a_status_belongs_to_the_stream_that_decoded(device: Device, make: Make) -> None:
    tested = make(device)
    ours, theirs = on_new_streams(device, 2)
    with ours():
        out = device.empty((1, 2, 2), np.uint8)
        status = tested.decode_batch(DeviceSegments.upload(device, Segments.of([b"\x80"])), out)
    with theirs(), pytest.raises(CorruptStream, match="inside a varint"):
        status.check()


@pytest.mark.parametrize("make", [rle_of, delta_of])
def test_a_status_of_a_recorded_decoder_is_that_of_the_current_stream(make: Make) -> None:
    device = SimulatedDevice(seed=1)
    tested, out = make(device), device.empty((1, 2, 2), np.uint8)
    streams = DeviceSegments.upload(device, Segments.of([b"\x80"]))
    device.recording = True
    status = tested.decode_batch(streams, out)
    device.recording = False
    with pytest.raises(CorruptStream, match="inside a varint"):
        status.check()


def test_reference_frames_are_there_for_every_stream(device: Device) -> None:
    ours, theirs = on_new_streams(device, 2)
    items = np.frombuffer(b"abcdefghabcdexgh", np.uint8).reshape(1, 2, 8)
    with ours():
        tested = delta_of(device, Layout((2, 8), "uint8")).with_dictionary(b"abcdefgh")
    with theirs():
        streams = tested.encode_batch(device.upload(items))
        out = device.empty(items.shape, np.uint8)
        tested.decode_batch(streams, out).check()
        assert device.download(out).tobytes() == items.tobytes()
        assert bytes(streams.download()[0]) == b"\x01\x04\x00\x01\x05\x01x"
