"""A longdouble has other bits on other processors: what one of them wrote, another one refuses."""

import json

import numpy as np
import obscodec
import pytest
from obscodec import EncodedTensor, Field, Layout, RingBuffer, decode, pack, unpack
from obscodec.codecs import codec_from_config
from obscodec.layout import dtype_name, dtypes, written_dtype

LONG = np.dtype(np.longdouble)
OURS = dtypes._long_format()
pytestmark = pytest.mark.skipif(LONG.itemsize == 8, reason="a longdouble is a double here")
REFUSED = (
    rf"numbers of dtype '{LONG.str}\[quad\]' were written on another processor: a longdouble of this one is {OURS}, "
    "which has other bits; convert them to float64 where they were written"
)


@pytest.fixture
def elsewhere(monkeypatch):
    """A context in which this process is one of a processor whose longdouble is ``quad``."""

    def call(function):
        with monkeypatch.context() as patch:
            patch.setattr(dtypes, "_long_format", lambda: "quad")
            return function()

    return call


def numbers():
    return np.arange(12, dtype=LONG).reshape(3, 4) / 3


@pytest.mark.parametrize("dtype", [np.longdouble, np.clongdouble])
def test_the_name_has_the_format(dtype):
    name = dtype_name(np.dtype(dtype))
    assert name == f"{np.dtype(dtype).str}[{OURS}]"
    assert written_dtype(name) == Layout((), name).dtype == np.dtype(dtype)


@pytest.mark.parametrize("name", ["<f8", "<c16", "<f4", "<c8"])
def test_other_floats_have_none(name):
    assert dtype_name(np.dtype(name)) == name
    with pytest.raises(obscodec.DTypeError, match="no dtype is named"):
        written_dtype(f"{name}[{OURS}]")


def test_a_name_without_a_format_is_refused():
    with pytest.raises(obscodec.DTypeError, match=f"no dtype is named '{LONG.str}'"):
        written_dtype(LONG.str)


WRITERS = {
    "messages": (lambda: obscodec.encode(numbers(), "zstd").to_bytes(), lambda x: decode(EncodedTensor.from_bytes(x))),
    "batches": (lambda: pack([numbers()]), lambda x: next(unpack(x, max_bytes=1 << 20))),
}


@pytest.mark.parametrize("what", WRITERS)
def test_what_another_processor_wrote_is_refused(what, elsewhere):
    write, read = WRITERS[what]
    np.testing.assert_array_equal(read(write()), numbers())
    with pytest.raises(obscodec.ObscodecError, match=REFUSED):
        read(elsewhere(write))


def test_configs(elsewhere):
    def config():
        return json.loads(json.dumps(obscodec.codec("zstd", Layout((4,), LONG)).config()))

    assert codec_from_config(config()).layout.dtype == LONG
    with pytest.raises(obscodec.DTypeError, match=REFUSED):
        codec_from_config(elsewhere(config))


@pytest.mark.parametrize("codec", ["zstd", None])
def test_snapshots(codec, elsewhere, tmp_path):
    def save():
        buffer = RingBuffer(10, {"x": Field((4,), LONG, codec)})
        buffer.extend(x=numbers())
        obscodec.save(buffer, tmp_path / "saved")

    save()
    np.testing.assert_array_equal(obscodec.load(tmp_path / "saved")[:]["x"][:, 0], numbers())
    elsewhere(save)
    with pytest.raises(obscodec.SnapshotError, match=REFUSED):
        obscodec.load(tmp_path / "saved")
