"""What users get wrong: every argument of the public surface says what was found, and what is allowed."""

import inspect
import re
import reprlib

import ml_dtypes
import numpy as np
import obscodec
import pytest
from obscodec import (
    AutoStore,
    DTypeError,
    EncodedTensor,
    Field,
    FieldError,
    FrameStack,
    FrameStore,
    Layout,
    Prioritized,
    RingBuffer,
    ShapeError,
    SlotError,
    Snapshot,
    SpecError,
    TensorArray,
    estimate,
    load,
)
from obscodec.arrays import WriteBuffer
from obscodec.buffers import ArraySet, BufferOptions
from obscodec.codecs import codec_from_config
from obscodec.segments import Segments
from obscodec.stores import Narrow
from obscodec.stores.narrow.narrow_store import NarrowStore

LAYOUT = Layout((4, 3), np.uint8)
FRAMES = np.arange(36, dtype=np.uint8).reshape(3, 4, 3)
FIELDS = {"frame": Field((4, 3), np.uint8, "zstd:1"), "done": Field((), np.bool_)}
NUMBER = obscodec.encode(np.uint8(4), "raw").to_bytes()
CODEC = obscodec.codec("zstd:1", LAYOUT)
FIELD = "field 'frame': "
PACKS = "batches must be some arrays [n, *shape], or one, got {kind}: "
IN_PARTS = (
    "expected a numpy array, or an object with __dlpack__ or the buffer protocol, got {kind}: pass its values one by "
    "one, such as x['obs']"
)
A_PATH = "path must be a folder, such as 'checkpoints', got {kind}"
STACKS = {"episode_end": "done", "fields": FIELDS, "pad": "zeros"}


def refused(error, text, call, *arguments, **options):
    with pytest.raises(error, match=f"^{re.escape(text)}$") as caught:
        call(*arguments, **options)
    assert type(caught.value) is error


# Where a number is asked for: its name, the least that is allowed, whether None is, and what becomes of it.
COUNTS = {
    "RingBuffer(capacity)": ("capacity", 1, False, lambda n: RingBuffer(n, FIELDS).capacity),
    "RingBuffer(n_envs)": ("n_envs", 1, False, lambda n: RingBuffer(5, FIELDS, n_envs=n).n_envs),
    "RingBuffer(stack)": (
        "stack of 'frame'", 1, False, lambda n: RingBuffer(5, stack={"frame": n}, **STACKS).stack["frame"]),
    "RingBuffer(threads)": ("threads", 1, True, lambda n: (RingBuffer(5, FIELDS, threads=n), n)[1]),
    "RingBuffer.sample": ("batch", 0, False, lambda n: len(ring().sample(n)["done"])),
    "Field(max_bytes)": ("max_bytes", 1, True, lambda n: Field((4,), np.uint8, max_bytes=n).max_bytes),
    "Field(decide_after)": ("decide_after", 1, True, lambda n: Field((4,), np.uint8, decide_after=n).decide_after),
    "Field(block_frames)": ("block_frames", 1, True, lambda n: Field((4,), np.uint8, block_frames=n).block_frames),
    "Field(min_nbytes)": ("min_nbytes", 0, True, lambda n: Field((4,), np.uint8, min_nbytes=n).min_nbytes),
    "FrameStack(depth)": ("depth", 1, False, lambda n: FrameStack(n).depth),
    "BufferOptions(min_nbytes)": ("min_nbytes", 0, True, lambda n: of_options(min_nbytes=n).min_nbytes),
    "AutoStore(threads)": ("threads", 1, True, lambda n: AutoStore(LAYOUT, threads=n).arguments()["threads"]),
    "FrameStore(block_frames)": ("block_frames", 1, False, lambda n: FrameStore(LAYOUT, block_frames=n).block_frames),
    "FrameStore(recent)": ("recent", 1, True, lambda n: FrameStore(LAYOUT, recent=n) and n),
    "FrameStore(first_id)": ("first_id", 1, False, lambda n: FrameStore(LAYOUT, first_id=n) and n),
    "FrameStore(max_bytes)": ("max_bytes", 1, True, lambda n: FrameStore(LAYOUT, max_bytes=n) and n),
    "FrameStore(threads)": ("threads", 1, True, lambda n: FrameStore(LAYOUT, threads=n) and n),
    "EncodedTensor.from_bytes": (
        "max_bytes", 0, True, lambda n: (EncodedTensor.from_bytes(NUMBER, max_bytes=n), n)[1]),
    "unpack": ("max_bytes", 0, True, lambda n: ([*obscodec.unpack(obscodec.pack([np.uint8([4])]), max_bytes=n)], n)[1]),
}  # fmt: skip

NO_NUMBERS = [None, "10", "a", b"x", [4], (4,), {"a": 4}, True, np.True_, np.zeros(3, int), 1j]
NOT_WHOLE = [1.5, float("nan"), float("inf"), np.float32(0.5), np.array(2.5)]
WHOLE = [4, 4.0, np.int64(4), np.uint8(4), np.float32(4), np.array(4), np.array(4.0)]


def zeros(shape):
    return TensorArray.zeros(shape, FrameStore(LAYOUT))


def ring(n_steps=1, **options):
    buffer = RingBuffer(5, FIELDS, **options)
    for step in range(n_steps):
        buffer.append(frame=FRAMES[step % 3], done=False)
    return buffer


def of_options(**options):
    return BufferOptions(**options).fields_of({"x": LAYOUT})["x"]


def narrow_store(**options):
    narrow = Narrow(np.dtype(np.float32), 8, (("/", 2),))
    codes, wide = FrameStore(LAYOUT), FrameStore(Layout((4, 3), np.float32))
    return NarrowStore(**{"narrow": narrow, "codes": codes, "wide": wide} | options)


@pytest.mark.parametrize("where", COUNTS)
def test_a_count_is_a_whole_number(where):
    what, least, optional, use = COUNTS[where]
    or_none = ", or None" if optional else ""
    for value in NO_NUMBERS + NOT_WHOLE:
        if value is None and optional:
            use(None)
            continue
        if isinstance(value, str) and value == "10" and what == "max_bytes":
            continue  # see below
        found = value[()] if isinstance(value, np.ndarray) and not value.ndim else value
        text = f"{what} must be a whole number, {least} or more{or_none}, got {reprlib.repr(found)}"
        refused(ShapeError if any(value is x for x in NOT_WHOLE) else DTypeError, text, use, value)
    for number in (least - 1, -5, -(10**20)):
        refused(ShapeError, f"{what} must be {least} or more{or_none}, got {number}", use, number)
    most = 2**63 - 1 if what == "max_bytes" else 2**47
    refused(ShapeError, f"{what} must be {most} or less{or_none}, got {10**20}", use, 10**20)


@pytest.mark.parametrize("where", COUNTS)
def test_a_whole_number_of_any_kind_is_taken(where):
    use = COUNTS[where][-1]
    for value in WHOLE:
        assert use(value) == 4


def test_a_million_as_people_write_it():
    assert RingBuffer(1e6, {"reward": Field((), np.float32)}).capacity == 1_000_000
    assert type(Field((84, 84), np.uint8, max_bytes=1e9).max_bytes) is int


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("10", "10"), ("1GB", "1_000_000_000"), ("1 GB", "1_000_000_000"), ("2gb", "2_000_000_000"),
        ("1GiB", "1_073_741_824"), ("1.5 MB", "1_500_000"), ("64k", "64_000"), ("0.1TB", "100_000_000_000"),
        ("5B", "5"), ("1_000", "1_000"),
    ],
)  # fmt: skip
def test_a_limit_as_a_text_is_refused_with_its_number(text, nbytes):
    told = f"max_bytes must be a number of bytes, or None, got {text!r}: write {nbytes}"
    for what, *_, use in COUNTS.values():
        if what == "max_bytes":
            refused(DTypeError, told, use, text)


# Where a thing of one class is asked for: what the error calls it, and what takes it.
KINDS = {
    "AutoStore(layout)": ("layout must be a Layout, such as Layout((84, 84), 'uint8')", AutoStore),
    "FrameStore(layout)": ("layout must be a Layout, such as Layout((84, 84), 'uint8')", FrameStore),
    "codec(layout)": ("layout must be a Layout, such as Layout((84, 84), 'uint8')", lambda x: obscodec.codec("raw", x)),
    "TensorArray(store)": ("store must be a Store, such as FrameStore(layout)",
                           lambda x: TensorArray(np.zeros(3, np.int32), x)),
    "TensorArray.zeros(store)": ("store must be a Store, such as FrameStore(layout)",
                                 lambda x: TensorArray.zeros((3,), x)),
    "TensorArray(ids)": ("ids are int32 or int64", lambda x: TensorArray(x, FrameStore(LAYOUT))),
    "RingBuffer(fields)": (
        "fields must be a mapping from names to Fields, such as {'frame': Field((84, 84), 'uint8')}",
        lambda x: RingBuffer(5, x)),
    "RingBuffer(fields[])": ("field 'frame' must be a Field, such as Field((84, 84), 'uint8')",
                             lambda x: RingBuffer(5, {"frame": x})),
    "RingBuffer.sample(convert)": ("convert must be a function, such as torch.from_numpy",
                                   lambda x: ring().sample(2, convert=x)),
    "BufferOptions.fields_of": ("the layout of 'x' must be a Layout", lambda x: BufferOptions().fields_of({"x": x})),
    "Layout.of": ("x must be a numpy array", Layout.of),
    "Layout.from_config": ("a layout config must be a mapping, such as Layout.config() gives", Layout.from_config),
    "codec_from_config": ("a codec config must be a mapping, such as Codec.config() gives", codec_from_config),
    "decode": ("encoded must be an EncodedTensor, such as encode() gives, or EncodedTensor.from_bytes() of bytes",
               obscodec.decode),
    "Codec.decode": ("encoded must be an EncodedTensor, such as encode() gives, or EncodedTensor.from_bytes() of bytes",
                     CODEC.decode),
    "Codec.encode_batch(rows)": ("rows must be a numpy array u8[n, 12]",
                                 lambda x: CODEC.encode_batch(x, np.empty(99, np.uint8))),
    "Codec.encode_batch(out)": ("out must be a numpy array u8[:]",
                                lambda x: CODEC.encode_batch(np.zeros((0, 12), np.uint8), x)),
    "Codec.decode_batch(rows)": ("rows must be a numpy array u8[n, 12]",
                                 lambda x: CODEC.decode_batch(Segments.of([]), x)),
    "Codec.decode_batch(src)": ("src must be Segments, such as Segments.of([b'abc'])",
                                lambda x: CODEC.decode_batch(x, np.zeros((0, 12), np.uint8))),
}  # fmt: skip


@pytest.mark.parametrize("where", KINDS)
def test_a_thing_of_another_kind_is_refused(where):
    expected, use = KINDS[where]
    for value in (None, "10", 1.5, True, 0, [4], (4, 3), object()):
        found = "None" if value is None else type(value).__name__
        if not (where == "RingBuffer.sample(convert)" and value is None):
            refused(DTypeError, f"{expected}, got {found}", use, value)


A_SHAPE = "a shape is a tuple of whole numbers, got {value}"
A_DTYPE = "a dtype is one of numpy, or its name, such as 'uint8', got {value}"
A_SPEC = "a spec is text such as 'zstd:3', got {kind}"
A_BUDGET = "a budget is 'fast' or None, got {value}"
A_DEVICE = "a device is a text such as 'cpu' or 'cuda:1', got {kind}"
A_HEAP = "heap is 'device' or 'pinned', got {value}"
A_STACK = "frame_stack must be a FrameStack, such as FrameStack(4, axis=-1), or a whole number, got {kind}"
STACKED = "stack must be a mapping from fields to numbers of steps, such as {{'frame': 4}}, got {kind}"
A_FIELD = "no field is named {value}, there are frame, done"
A_SEED = "rng must be a numpy.random.Generator, a torch.Generator, a seed of 0 or more, or None, got {value}"
A_STAGE = "a stage is name[:arg,...] as in 'zstd:3', got {value} in spec {value}: write 'zstd'"
STREAMS = "streams are a list of bytes, or of arrays u8[:], got {value}"
CHANGED = (
    "values of dtype object would be changed by dtype uint8: cast them yourself, or use a dtype that can hold them"
)
NO_DTYPE = (
    "dtype object can't be stored; allowed are bool, integers, floats, complex, datetime64, timedelta64, bfloat16 and "
    "float8: convert the array, or leave it uncompressed"
)
ARRAYS = "items are a numpy array, got {kind}: convert it, as in numpy.asarray(x)"
TEXTS = [4, 1.5, True, ["raw"], np.array(["auto", "auto"])]
DEVICES = [None, 0, np.zeros(2)]
BUDGETS = [1.5, 0, True, [4], "quick", "1 ms/batch", np.array(["fast"]), np.array(["a", "b"])]
HEAPS = [None, 0, ["device"]]
DEPTHS = ["10", True, (4, -1), [4]]
# Where something else is asked for: what is raised for which values.
OTHERS = {
    "Layout(shape)": (ShapeError, A_SHAPE, [None, "10", 1.5, True, ("4",)], lambda x: Layout(x, "u1")),
    "Layout(number)": (ShapeError, f"{A_SHAPE}: write ({{value}},)", [4, 84], lambda x: Layout(x, "u1")),
    "Field(shape)": (ShapeError, A_SHAPE, [None, "10", (1.5,), (True, 4)], lambda x: Field(x, "u1")),
    "Field(number)": (ShapeError, f"{A_SHAPE}: write ({{value}},)", [84], lambda x: Field(x, "u1")),
    "TensorArray.zeros(shape)": (ShapeError, A_SHAPE, [None, "10", 1.5, (1.5,)], lambda x: zeros(x)),
    "TensorArray.zeros(-1)": (ShapeError, "shape ({value},) has a negative axis, every axis must be 0 or more", [-1],
                              lambda x: zeros(x)),
    "Layout(dtype)": (DTypeError, A_DTYPE, [None, 1.5, 4, True, [4], {"a": 4}], lambda x: Layout((4,), x)),
    "Field(dtype)": (DTypeError, A_DTYPE, [None, 4], lambda x: Field((4,), x, None)),
    "Field(dtype), a name": (DTypeError, "no dtype is named {value}; examples are '|u1', '<f4', 'bfloat16'", ["image"],
                             lambda x: Field((4,), x)),
    "Field(dtype), an object": (DTypeError, NO_DTYPE, [object], lambda x: Field((4,), x)),
    "Field(codec)": (SpecError, A_SPEC, TEXTS, lambda x: Field((4,), "u1", x)),
    "Field(codec), a name": (SpecError, A_STAGE, ["ZSTD"], lambda x: Field((4,), "u1", x)),
    "BufferOptions(codec{})": (SpecError, A_SPEC, TEXTS, lambda x: BufferOptions(codec={"x": x})),
    "FrameStore(codec)": (SpecError, A_SPEC, [*TEXTS, {}], lambda x: FrameStore(LAYOUT, codec=x)),
    "codec(spec)": (SpecError, A_SPEC, [*TEXTS, {}], lambda x: obscodec.codec(x, LAYOUT)),
    "encode(spec)": (SpecError, A_SPEC, [*TEXTS, {}], lambda x: obscodec.encode(FRAMES, x)),
    "Field(budget)": (SpecError, A_BUDGET, BUDGETS, lambda x: Field((4,), "u1", budget=x)),
    "BufferOptions(budget{})": (SpecError, A_BUDGET, BUDGETS, lambda x: BufferOptions(budget={"x": x})),
    "Field(device)": (SpecError, A_DEVICE, DEVICES, lambda x: Field((4,), "u1", device=x)),
    "FrameStore(device)": (SpecError, A_DEVICE, DEVICES, lambda x: FrameStore(LAYOUT, device=x)),
    "codec(device)": (SpecError, A_DEVICE, DEVICES, lambda x: obscodec.codec("raw", LAYOUT, x)),
    "Field(heap)": (SpecError, A_HEAP, HEAPS, lambda x: Field((4,), "u1", heap=x)),
    "FrameStore(heap)": (SpecError, A_HEAP, HEAPS, lambda x: FrameStore(LAYOUT, heap=x)),
    "Field(frame_stack)": (DTypeError, A_STACK, DEPTHS, lambda x: Field((4,), "u1", frame_stack=x)),
    "BufferOptions(frame_stack{})": (DTypeError, A_STACK, DEPTHS, lambda x: BufferOptions(frame_stack={"x": x})),
    "Field(frame_stack=0)": (ShapeError, "frame_stack must be 1 or more, got {value}", [0],
                             lambda x: Field((4,), "u1", frame_stack=x)),
    "Field(frame_stack=1.5)": (ShapeError, "frame_stack must be a whole number, 1 or more, got {value}", [1.5],
                               lambda x: Field((4,), "u1", frame_stack=x)),
    "FrameStack(axis)": (ShapeError, "axis must be 0 or -1, got {value}", [1, -2, None, "0", True, [0], 0.5],
                         lambda x: FrameStack(4, x)),
    "RingBuffer({name})": (DTypeError, "the name of a field must be a text, such as 'frame', got {kind}", [4, (4,)],
                           lambda x: RingBuffer(5, {x: Field((), "u1")})),
    "RingBuffer(stack)": (DTypeError, STACKED, [4, 0, "frame", ["frame"], FrameStack(4)],
                          lambda x: RingBuffer(5, stack=x, **STACKS)),
    "RingBuffer(episode_end)": (FieldError, A_FIELD, [1.5, True, {"done"}, {"done": 1}, "end"],
                                lambda x: RingBuffer(5, FIELDS, episode_end=x)),
    "Field(shares)": (FieldError, "field 'x' needs {value}: " + A_FIELD, [1.5, ["frame"], "obs"],
                      lambda x: ArraySet(FIELDS | {"x": Field((4, 3), "u1", shares=x)})),
    "RingBuffer.sample(rng)": (DTypeError, A_SEED, ["3", 1.5, -1, {"a": 4}], lambda x: ring().sample(2, x)),
    "fields_of": (DTypeError, "layouts must be a mapping from names to Layouts, got {kind}", [None, 4, [LAYOUT]],
                  lambda x: BufferOptions().fields_of(x)),
    "TensorArray(write_buffer)": (DTypeError,
                                  "write_buffer must be a WriteBuffer, such as WriteBuffer(store, n_envs), got {kind}",
                                  [4, "10", [4]], lambda x: TensorArray.zeros((3, 1), FrameStore(LAYOUT), x)),
    "swapaxes": (DTypeError, "axis must be a whole number, got {kind}", [None, "0", 1.5, [0]],
                 lambda x: zeros((3, 1)).swapaxes(x, 0)),
    "Segments.of": (DTypeError, STREAMS, [["a"], [4], None, 4, "a"], lambda x: Segments.of(x)),
    "Layout.rows": (DTypeError, ARRAYS, [4, [4], "10"], lambda x: LAYOUT.rows(x)),
    "Codec.fit": (DTypeError, ARRAYS, [4, [4], "10"], lambda x: CODEC.fit(x)),
    "append(ragged)": (DTypeError, FIELD + "expected an array, or numbers in lists of equal lengths, got {value}",
                       [[[1], [2, 3]]], lambda x: ring().append(frame=x, done=False)),
    "append(too large)": (DTypeError, FIELD + CHANGED, [np.full((4, 3), 10**20)],
                          lambda x: ring().append(frame=x, done=False)),
    "pack(mapping)": (
        DTypeError, PACKS + "write pack(x.values()), and dict(zip(x.keys(), unpack(packed))) to have the names again",
        [{}, {"obs": FRAMES}], obscodec.pack),
    "pack(no arrays)": (DTypeError, PACKS + "write pack([x]) or pack([x, y])", [None, 5, "text"], obscodec.pack),
    "pack(mapping in a list)": (DTypeError, "batches[1]: " + IN_PARTS, [{"obs": FRAMES}],
                                lambda x: obscodec.pack([FRAMES, x])),
    "pack(number)": (ShapeError, "a batch is an array [n, *shape], got a single number: write x[None]", [np.uint8(4)],
                     obscodec.pack),
    "encode(mapping)": (DTypeError, IN_PARTS, [{"obs": FRAMES}], obscodec.encode),
    "decode(mapping)": (
        DTypeError, "encoded must be an EncodedTensor, such as encode() gives, or EncodedTensor.from_bytes() of bytes, "
        "got {kind}: pass its values one by one, such as x['obs']", [{"obs": CODEC}], obscodec.decode),
    "codec(array)": (
        DTypeError, "layout must be a Layout, such as Layout((84, 84), 'uint8'), got {kind}: write "
        "Layout(x.shape, x.dtype)", [FRAMES, np.uint8(4)], lambda x: obscodec.codec("zstd", x)),
    "codec(no array)": (DTypeError, "layout must be a Layout, such as Layout((84, 84), 'uint8'), got {kind}",
                        [(4, 3), np.uint8, None], lambda x: obscodec.codec("zstd", x)),
    "Layout(dtype, shape)": (
        ShapeError, "a shape is a tuple of whole numbers, got {value}: the shape comes first, then the dtype",
        [np.uint8, "uint8"], lambda x: Layout(x, (4, 3))),
    "RingBuffer(array)": (
        DTypeError, "field 'frame' must be a Field, such as Field((84, 84), 'uint8'), got {kind}: write "
        "Field(x.shape, x.dtype)", [FRAMES, LAYOUT], lambda x: RingBuffer(5, {"frame": x})),
    "append(mapping)": (
        DTypeError, FIELD + "expected an array, or numbers in lists, got {kind}: pass its values one by one, such as "
        "x['a']", [{"a": FRAMES[0]}], lambda x: ring().append(frame=x, done=False)),
    "sample(n_step)": (ShapeError, "n_step must be 1 or more, got {value}", [0, -1],
                       lambda x: ring().sample(4, n_step=x)),
    "save(path, buffer)": (
        DTypeError, "save takes a RingBuffer, a Prioritized, a TensorArray or a store, got {kind}: the path comes "
        "second, as in save(buffer, path)", ["folder"], lambda x: obscodec.save(x, ring())),
    "load": (DTypeError, A_PATH, [None, 3, {"a": 1}], load),
    "Snapshot": (DTypeError, A_PATH, [None, 3, {"a": 1}], Snapshot),
    "Snapshot.write": (
        DTypeError, "write takes a RingBuffer, a Prioritized, a TensorArray or a store, or a buffer of an adapter, got "
        "{kind}", [{"obs": FRAMES}, FRAMES], lambda x: Snapshot("folder").write(x)),
    "estimate(mapping)": (
        DTypeError, "env must be an environment or a space of Gymnasium, or a vector of environments, got {kind}: pass "
        "gymnasium.spaces.Dict(x) if it has spaces", [{"obs": 4}], estimate),
}  # fmt: skip


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: obscodec.encode(FRAMES, codec="zstd"), "encode got an unexpected keyword argument 'codec', there are "
         "tensor, spec"),
        (lambda: obscodec.pack(obs=FRAMES), "pack got an unexpected keyword argument 'obs', there are batches"),
        (lambda: obscodec.unpack(b"", max_byte=4), "unpack got an unexpected keyword argument 'max_byte', did you mean "
         "'max_bytes'? There are packed, max_bytes"),
        (lambda: obscodec.codec("zstd", LAYOUT, devices="cuda"), "codec got an unexpected keyword argument 'devices', "
         "did you mean 'device'? There are spec, layout, device"),
        (lambda: obscodec.decode(obscodec.encode(FRAMES), ou=FRAMES), "decode got an unexpected keyword argument 'ou', "
         "did you mean 'out'? There are encoded, out"),
    ],
    ids=["encode", "pack", "unpack", "codec", "decode"],
)  # fmt: skip
def test_a_misspelled_argument_of_a_function(call, text):
    refused(TypeError, text, call)


@pytest.mark.parametrize("where", OTHERS)
def test_what_else_users_get_wrong(where):
    error, text, values, use = OTHERS[where]
    for value in values:
        kind = "None" if value is None else type(value).__name__
        refused(error, text.format(value=reprlib.repr(value), kind=kind), use, value)


@pytest.mark.parametrize("make", [FrameStore, AutoStore])
def test_ids_and_streams_are_integers(make):
    store = make(LAYOUT)
    ids = store.append(FRAMES)
    for call in (store.read, store.release):
        for given, dtype in ((None, "object"), ("1", "<U1"), (1.0, "float64"), ([True], "bool"), (10**20, "object")):
            refused(SlotError, f"ids are integers, got {dtype}", call, given)
        refused(ShapeError, "ids have shape (n,), got (1, 3)", call, ids[None])
    for given, dtype in ((None, "object"), ("1", "<U1"), (1.5, "float64"), ([True] * 3, "bool"), (10**20, "object")):
        refused(DTypeError, f"sequences are integers, got {dtype}", store.append, FRAMES, given)
    text = "tensors are a numpy array, for a store on the CPU, got "
    for given, kind in ((None, "NoneType"), ([FRAMES], "list"), (4, "int"), ({}, "dict")):
        refused(DTypeError, text + kind, store.append, given)
    refused(ShapeError, "items have shape (n, 4, 3), got ()", store.append, np.array(4, np.uint8))
    np.testing.assert_array_equal(store.read(ids), FRAMES)
    np.testing.assert_array_equal(store.read(np.uint8(ids[0])), FRAMES[:1])
    store.release(ids.tolist())
    assert store.stats().n_tensors == 0


def test_a_number_is_a_frame_stack():
    assert Field((4, 9, 9), np.uint8, frame_stack=4) == Field((4, 9, 9), np.uint8, frame_stack=FrameStack(4))
    assert of_options(frame_stack=np.int64(4)).frame_stack == FrameStack(4)
    assert of_options(frame_stack={"x": 4}).frame_stack == FrameStack(4)
    assert AutoStore(LAYOUT, frame_stack=4).options.frame_stack == FrameStack(4)


def test_a_field_keeps_what_it_was_given_in_one_form():
    assert Field([84, np.int64(84)], "u1", max_bytes=1e6) == Field((84, 84), "u1", max_bytes=1_000_000)
    assert {Field([84, 84], "u1"): 1}[Field((84, 84), "u1")] == 1


class Length(np.ndarray):
    """An array with a unit, as in astropy and unyt."""

    unit = "m"


def masked(x):
    return np.ma.masked_array(x, np.zeros(x.shape, bool))


MASK = "a MaskedArray would lose its mask: fill it, as in x.filled(0), or store x.data and x.mask as two arrays"
UNIT = "a Length would lose its unit: convert it to the one that you want, and take its numbers, as in numpy.asarray(x)"
ENTRANCES = {
    "encode": ("", lambda x: obscodec.encode(x[0], "raw")),
    "Codec.encode": ("", lambda x: CODEC.encode(x[0])),
    "Codec.encode_batch": ("", lambda x: CODEC.encode_batch(x.reshape(3, 12), np.empty(999, np.uint8))),
    "Codec.fit": ("", obscodec.codec("delta-rle", LAYOUT).fit),
    "decode(out)": ("", lambda x: obscodec.decode(obscodec.encode(FRAMES, "raw"), x)),
    "pack": ("batches[0]: ", lambda x: obscodec.pack([x])),
    "RingBuffer.append": (FIELD, lambda x: ring().append(frame=x[0], done=False)),
    "RingBuffer.append(n_envs=3)": (FIELD, lambda x: RingBuffer(5, FIELDS, 3).append(frame=x, done=np.zeros(3, bool))),
    "RingBuffer.append, plain": (
        FIELD, lambda x: RingBuffer(5, {"frame": Field((4, 3), np.uint8, None)}).append(frame=x[0])),
    "RingBuffer.append of a list": (FIELD, lambda x: RingBuffer(5, FIELDS, 3).append(frame=list(x), done=[False] * 3)),
    "TensorArray, a row": ("", lambda x: TensorArray.zeros((5,), FrameStore(LAYOUT)).__setitem__(0, x[0])),
    "TensorArray, a part": ("", lambda x: TensorArray.zeros((5,), FrameStore(LAYOUT)).__setitem__((0, 0), x[0, 0])),
    "TensorArray, waiting": ("", lambda x: waiting().__setitem__(0, x[:1])),
    "FrameStore.append": ("", FrameStore(LAYOUT).append),
    "AutoStore.append": ("", AutoStore(LAYOUT).append),
    "FrameStore.append, stacks": ("", lambda x: stack_store().append(x)),
    "NarrowStore.append": ("", lambda x: narrow_store().append(x.astype(np.float32))),
    "Store.read(out)": ("", lambda x: (lambda store: store.read(store.append(FRAMES), x))(FrameStore(LAYOUT))),
}  # fmt: skip


def waiting():
    store = FrameStore(LAYOUT)
    return TensorArray.zeros((5, 1), store, WriteBuffer(store, 1))


def stack_store():
    return FrameStore(LAYOUT, frame_stack=FrameStack(4))


@pytest.mark.parametrize("where", ENTRANCES)
def test_an_array_that_would_lose_its_mask_or_its_unit_is_refused(where):
    prefix, use = ENTRANCES[where]
    refused(DTypeError, prefix + MASK, use, masked(FRAMES.copy()))
    refused(DTypeError, prefix + UNIT, use, FRAMES.copy().view(Length))
    use(FRAMES.copy())


def test_an_array_of_another_library_that_would_lose_its_unit_is_refused():
    class Quantity:
        units = "m"

        def __array__(self, dtype=None, copy=None):
            return FRAMES[0]

    text = "a Quantity would lose its unit: convert it to the one that you want, and take its numbers, as in "
    refused(DTypeError, f"{text}numpy.asarray(x)", obscodec.encode, Quantity(), "raw")
    refused(DTypeError, f"{FIELD}{text}numpy.asarray(x)", ring().append, frame=Quantity(), done=False)


@pytest.mark.parametrize("kind", ["memmap", "matrix", "recarray"])
def test_arrays_that_are_nothing_but_their_elements_are_taken(kind, tmp_path):
    frame, layout = FRAMES[0], Layout((3,), np.uint8)
    if kind == "memmap":
        given = np.memmap(tmp_path / "frame", np.uint8, "w+", shape=frame.shape)
        given[...] = frame
    else:
        given = frame.view(getattr(np, kind))
    buffer = ring(0)
    buffer.append(frame=given, done=False)
    np.testing.assert_array_equal(buffer[-1]["frame"][0], frame)
    np.testing.assert_array_equal(obscodec.decode(obscodec.encode(given, "rle")), frame)
    for store in (FrameStore(layout), AutoStore(layout)):
        np.testing.assert_array_equal(store.read(store.append(given)), frame)
    array = TensorArray.zeros((5,), FrameStore(LAYOUT))
    array[0] = given
    np.testing.assert_array_equal(array[0], frame)
    np.testing.assert_array_equal(next(obscodec.unpack(obscodec.pack([given]))), frame)


def test_small_floats_are_no_numbers_of_steps():
    text = f"capacity must be a whole number, 1 or more, got {reprlib.repr(ml_dtypes.bfloat16(4))}"
    refused(DTypeError, text, RingBuffer, ml_dtypes.bfloat16(4), FIELDS)


OBS = {"obs": Field((4,), np.uint8)}


class Mine(RingBuffer):
    """Of a user."""


@pytest.mark.parametrize(
    ("call", "what", "meant"),
    [
        (lambda: RingBuffer(9, OBS, num_envs=3), "RingBuffer got an unexpected keyword argument 'num_envs'", "n_envs"),
        (lambda: Mine(9, OBS, num_envs=3), "Mine got an unexpected keyword argument 'num_envs'", "n_envs"),
        (lambda: Field((4,), np.uint8, codecs="raw"), "Field got an unexpected keyword argument 'codecs'", "codec"),
        (
            lambda: RingBuffer(9, OBS).sample(2, nstep=3),
            "RingBuffer.sample got an unexpected keyword argument 'nstep'",
            "n_step",
        ),
        (
            lambda: RingBuffer(9, OBS).sequences(2, 3, burnin=3),
            "RingBuffer.sequences got an unexpected keyword argument 'burnin'",
            "burn_in",
        ),
        (lambda: estimate(None, n_samples=300), "estimate got an unexpected keyword argument 'n_samples'", "n_sample"),
        (
            lambda: AutoStore(Layout((4,), np.uint8), bugdet="fast"),
            "AutoStore got an unexpected keyword argument 'bugdet'",
            "budget",
        ),
        (lambda: Prioritized(9, aplha=1), "Prioritized got an unexpected keyword argument 'aplha'", "alpha"),
        (lambda: Snapshot("folder", keeps=2), "Snapshot got an unexpected keyword argument 'keeps'", "keep"),
        (lambda: load("folder", salvages=True), "load got an unexpected keyword argument 'salvages'", "salvage"),
    ],
)
def test_an_unknown_argument_is_named_with_the_one_that_was_meant(call, what, meant):
    with pytest.raises(TypeError, match=rf"^{re.escape(what)}, did you mean '{meant}'\? There are [^']*\b{meant}\b"):
        call()


def test_an_argument_that_is_like_no_other_is_listed_with_all():
    there = "shape, dtype, codec, frame_stack, budget, decide_after, block_frames, max_bytes, device, heap, recent"
    there += ", interleaved, min_nbytes, shares, next_of, after"
    with pytest.raises(TypeError, match=rf"^Field got an unexpected keyword argument 'compress', there are {there}$"):
        Field((4,), np.uint8, compress="raw")


def test_a_missing_argument_is_named_with_the_class_that_was_called():
    with pytest.raises(TypeError, match=r"^Mine\(\) missing 1 required positional argument: 'fields'$"):
        Mine(9)


def test_signatures_are_as_they_were_written():
    assert [*inspect.signature(RingBuffer).parameters][:4] == ["capacity", "fields", "n_envs", "stack"]
    assert inspect.signature(Field).parameters["codec"].default == "auto"
    assert "n_step" in inspect.signature(RingBuffer.sample).parameters


def test_a_field_that_was_meant_is_named():
    text = "no field is named 'observation', did you mean 'observations'? There are observations, done"
    fields = {"observations": Field((4,), np.uint8), "done": Field((), np.bool_)}
    with pytest.raises(FieldError, match=f"^{re.escape(text)}$"):
        RingBuffer(9, fields, stack={"observation": 4}, episode_end="done")
