"""No number is cast that its new dtype does not reach: what comes of it depends on the processor."""

import re

import numpy as np
import obscodec
import pytest
from obscodec.layout import are_within, as_dtype

FLOATS = ["float16", "float32", "float64", "longdouble", "bfloat16", "float8_e5m2"]
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


class OnArm(np.ndarray):
    """Casts floats to integers as an Arm processor does: to the nearest integer there is, NaN to 0."""

    def astype(self, dtype, *args, **kwargs):
        x, dtype = np.asarray(self), np.dtype(dtype)
        if x.dtype.kind == "f" and dtype.kind in "iu":
            limits = np.iinfo(dtype)
            exact = [0 if np.isnan(n) else limits.max if n == np.inf else int(max(n, limits.min)) for n in x.flat]
            x = np.array([min(n, limits.max) for n in exact], dtype).reshape(x.shape)
        return x.astype(dtype, *args, **kwargs).view(OnArm)


def floats_around(name):
    """The limits of an integer dtype as floats, and what is next to them."""
    limits = np.iinfo(name)
    end = 2.0 ** (limits.bits - (name[0] == "i"))
    begin = float(limits.min)
    within = [begin, np.nextafter(end, 0.0), 0.0, -0.0, 1.0]
    outside = [end, np.nextafter(end, np.inf), np.nextafter(begin, -np.inf), 2 * end, -2 * end, np.inf, -np.inf, np.nan]
    return within, outside


@pytest.mark.parametrize("name", INTEGERS)
def test_the_range_ends_before_the_power_of_two(name):
    within, outside = floats_around(name)
    assert are_within(np.array(within), np.dtype(name)).all()
    assert not are_within(np.array(outside), np.dtype(name)).any()
    assert not are_within(np.array(outside, complex), np.dtype(name)).any()


@pytest.mark.parametrize("view", [np.ndarray, OnArm])
@pytest.mark.parametrize("name", INTEGERS)
def test_floats_out_of_range_are_refused_on_any_processor(name, view):
    for number in floats_around(name)[1]:
        with pytest.raises(obscodec.DTypeError, match=re.escape(f"such as {number}, would be changed by dtype {name}")):
            as_dtype(np.array([1.0, number]).view(view), np.dtype(name))


@pytest.mark.parametrize("view", [np.ndarray, OnArm])
@pytest.mark.parametrize("of", FLOATS)
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_that_round_up_beyond_their_range_are_refused(name, of, view):
    """The greatest becomes a power of two, which an Arm processor casts back to the greatest."""
    dtype, greatest = obscodec.Layout((), of).dtype, np.array([np.iinfo(name).max], name).view(view)
    with np.errstate(over="ignore"):
        nearest = np.asarray(greatest).astype(dtype)[0]
    if np.isfinite(nearest) and int(nearest) == np.iinfo(name).max:  # it has so many bits
        assert as_dtype(greatest, dtype) == greatest
    else:
        with pytest.raises(obscodec.DTypeError, match="would be changed"):
            as_dtype(greatest, dtype)


@pytest.mark.parametrize("of", FLOATS)
@pytest.mark.parametrize("name", INTEGERS)
def test_floats_within_the_range_stay_as_they_are(name, of):
    numbers = np.array([0.0, 1.0, 96.0]).astype(obscodec.Layout((), of).dtype)
    assert as_dtype(numbers, np.dtype(name)).tolist() == [0, 1, 96]
