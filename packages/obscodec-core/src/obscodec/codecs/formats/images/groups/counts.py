"""Which classes suit groups, and how often symbols appear in these: what books are trained on."""

from obscodec.codecs.formats.images.geometry import GROUP_NBYTES, GROUP_STRIDE, SIDE
from obscodec.codecs.formats.images.groups.classes import (
    LARGEST_OF,
    LIMIT_OF,
    N_MEANS,
    RAW,
    STARTS,
    group_key,
    residuals_of_code,
    symbols_of,
)
from obscodec.kernels import address, compiled, load_u64, signed, unsigned
from obscodec.segments import Bytes, Ints


@compiled
def measure_groups(residuals: Bytes, costs: Ints, of_classes: Ints, labels: Bytes, keys: Ints, sums: Ints) -> None:
    """Find the cheapest class of each group, of ``GROUP_STRIDE`` bytes of residuals.

    ``costs``, ``i64[:]``, are those of each symbol, ``of_classes``, ``i64[16]``, what it costs to name a class. The
    classes go to ``labels``, ``u8[n_groups]``, the keys to ``keys``, ``i64[n_groups]``, and the costs of all groups of
    a key in each class to ``sums``, ``i64[N_KEYS, 16]``.
    """
    sums[:] = 0
    for g in range(len(labels)):
        group = address(residuals) + GROUP_STRIDE * g
        keys[g] = group_key(group)
        largest = keys[g] // N_MEANS
        best, fewest = RAW, 8 * 16 * GROUP_NBYTES + of_classes[RAW]
        sums[keys[g], RAW] += fewest
        for k in range(RAW):
            if largest and 2 * LIMIT_OF[k] >= LARGEST_OF[largest]:
                total, width = of_classes[k], residuals_of_code(k)
                for at in range(group, group + GROUP_NBYTES, SIDE):
                    symbols = symbols_of(load_u64(at), width, LIMIT_OF[k])
                    for j in range(0, 64, 8 * width):
                        symbol = symbols >> unsigned(j) & (unsigned(1) << unsigned(8 * width)) - unsigned(1)
                        total += costs[STARTS[k] + signed(symbol)]
                sums[keys[g], k] += total
                if total < fewest:
                    best, fewest = k, total
        labels[g] = best if largest else 0


@compiled
def count_symbols(residuals: Bytes, labels: Bytes, counts: Ints) -> None:
    """Count the symbols of groups in their classes, into ``i64[:]``; see :func:`measure_groups`."""
    counts[:] = 0
    for g in range(len(labels)):
        group, k = address(residuals) + GROUP_STRIDE * g, signed(labels[g])
        if 0 < k < RAW:
            width = residuals_of_code(k)
            for at in range(group, group + GROUP_NBYTES, SIDE):
                symbols = symbols_of(load_u64(at), width, LIMIT_OF[k])
                for j in range(0, 64, 8 * width):
                    symbol = symbols >> unsigned(j) & (unsigned(1) << unsigned(8 * width)) - unsigned(1)
                    counts[STARTS[k] + signed(symbol)] += 1
