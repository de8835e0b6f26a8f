"""Targets that restore states, and load snapshots whose checksums are made right."""

import copy
import json
import os
import random
import shutil
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import obscodec
import xxhash
from mutators import HOSTILE
from obscodec import RingBuffer, TensorArray
from obscodec.errors import ObscodecError
from obscodec.segments import Segments
from obscodec.snapshots import named
from obscodec.snapshots.segment_file import checksum
from obscodec.stores import Store, store_of
from saved import array, ring, stores, tensors
from targets import READ, SKIPPED, Make, Target, outcome_of

_EDIT = struct.Struct("<HHBBq")  # which leaf, where in it, what to do, a choice, a number
_RECORD = struct.Struct("<QQ")
_SPECIAL = (
    0,
    1,
    -1,
    2,
    15,
    16,
    17,
    255,
    256,
    2**15,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
)
_SMALL = 1 << 16  # numbers up to here announce nothing large, as numbers of items of a kB

Saved = RingBuffer | TensorArray | Store


def bases() -> dict[str, Saved]:
    """What is saved, small."""
    made: dict[str, Saved] = {}
    for name, store in stores().items():
        ids = store.append(tensors(store.layout, 60), np.arange(60) % 2)
        store.release(ids[:20])
        made[name] = store
    made["array"] = array(30)
    made["ring"] = ring(25, capacity=20)
    return made


def use(loaded: Saved, seed: int) -> None:
    """Read what is there, add to it, and take all away; what is not there may be refused."""
    if isinstance(loaded, RingBuffer):
        _try(lambda: loaded.sample(20, seed))
        _try(lambda: loaded[:])
        step = {
            name: np.zeros((loaded.n_envs, *of.layout.shape), of.layout.dtype) for name, of in loaded.fields.items()
        }
        for _ in range(3):
            _try(lambda: loaded.append(**step))
        _try(lambda: loaded.stats())
    elif isinstance(loaded, TensorArray):
        _try(lambda: loaded[:])
        _try(lambda: loaded.__setitem__(slice(0, 2), 3))
        _try(lambda: loaded.store.stats())
    else:
        _use_store(loaded, seed)


def _use_store(store: Store, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for ids in (np.arange(2, 80), rng.integers(0, 400, 12)):
        for known in (ids, ids[:1], ids[-1:]):
            _try(lambda known=known: store.read(known))
    more, added = tensors(store.layout, 12, seed=1), []
    _try(lambda: added.append(store.append(more, np.arange(12) % 3)))
    for taken in added:
        _try(lambda taken=taken: store.read(taken))
    _try(lambda: store.state())
    for known in range(2, 80, 7):
        _try(lambda known=known: store.release([known]))
    _try(lambda: store.stats())


def _try(call: Callable[[], object]) -> None:
    with suppress(ObscodecError):
        call()


def leaves(value: Any, of: Any, key: Any) -> Iterator[tuple[Any, Any]]:
    """The places of all values that have no others in them, and of all arrays."""
    if isinstance(value, dict):
        for name in list(value):
            yield from leaves(value[name], value, name)
    elif isinstance(value, list):
        for at in range(len(value)):
            yield from leaves(value[at], value, at)
    else:
        yield of, key


def edit_array(x: np.ndarray, at: int, kind: int, number: int) -> np.ndarray:
    """A copy of an array that is changed in one place or in its form."""
    number = _SPECIAL[number % len(_SPECIAL)] if kind & 8 else number
    x, flat = x.copy(), None
    kind &= 7
    flat = x.reshape(-1)
    if kind <= 3 and flat.size:
        at %= flat.size
        if flat.dtype.kind in "iu":
            old = int(flat[at])
            new = number if kind == 0 else old + number % 5 - 2 if kind == 1 else number % (4 * flat.size + 2)
            if kind == 3:
                new = int(flat[number % flat.size])
            bits = 8 * flat.itemsize
            new &= (1 << bits) - 1
            flat[at] = new - (1 << bits) if flat.dtype.kind == "i" and new >> (bits - 1) else new
        else:
            flat.view(np.uint8)[at] ^= 1 << number % 8
        return x
    if kind == 4:
        return x[: at % (len(x) + 1)] if x.ndim else x
    if kind == 5:
        return np.concatenate([x, x[: 1 + at % max(1, len(x))]]) if x.ndim else x
    if kind == 6:
        return x.astype((np.int64, np.int32, np.uint8, np.float64)[at % 4], casting="unsafe")
    with np.errstate(all="ignore"):
        return x * 0


def edit_value(of: Any, key: Any, where: int, kind: int, choice: int, number: int) -> None:
    """Change one value of a state."""
    value = of[key]
    if isinstance(value, np.ndarray):
        of[key] = edit_array(value, where, kind, number)
    elif isinstance(value, Segments):
        columns = [value.which, value.offsets, value.lengths]
        if kind & 128 or not len(value):
            stream = bytearray(value.buffers[0].tobytes()) if value.buffers else bytearray()
            if stream:
                stream[where % len(stream)] = number % 256
                of[key] = Segments((np.frombuffer(bytes(stream), np.uint8), *value.buffers[1:]), *columns)
            return
        columns[1 + choice % 2] = edit_array(columns[1 + choice % 2], where, kind & 3 | kind & 8, number)
        of[key] = Segments(value.buffers, *columns)
    elif kind & 16 and isinstance(of, dict):
        del of[key]
    elif type(value) is int and kind & 1:
        of[key] = value + number % 5 - 2 if kind & 2 else _SPECIAL[choice % len(_SPECIAL)]
    else:
        of[key] = copy.deepcopy(HOSTILE[(choice + number) % len(HOSTILE)])


def edits_of(content: bytes) -> list[tuple[int, int, int, int, int]]:
    """The changes that an input asks for, at most eight."""
    n = min(8, len(content) // _EDIT.size)
    return [_EDIT.unpack_from(content, k * _EDIT.size) for k in range(n)]


def changed_edits(content: bytes, rng: random.Random) -> bytes:
    """Another base, another change, or one more."""
    edits = edits_of(content[1:])
    if not edits or rng.random() < 0.3:
        edits.insert(rng.randrange(len(edits) + 1), (0, 0, 0, 0, 0))
    at = rng.randrange(len(edits))
    number = rng.choice((rng.getrandbits(4), rng.getrandbits(8), rng.getrandbits(63), -rng.getrandbits(31)))
    edits[at] = (rng.getrandbits(16), rng.getrandbits(16), rng.getrandbits(8), rng.getrandbits(8), number)
    if rng.random() < 0.2:
        del edits[rng.randrange(len(edits))]
    first = content[:1] if content and rng.random() < 0.7 else rng.randbytes(1)
    return first + b"".join(_EDIT.pack(*edit) for edit in edits[:8])


def seeds(n_bases: int) -> list[bytes]:
    """A base each, without changes and with some."""
    rng = random.Random(2)
    return [changed_edits(bytes([k]), rng) for k in range(n_bases) for _ in range(20)]


class States:
    """States with changes: the first byte chooses what is restored, the others what is changed."""

    def __init__(self) -> None:
        self._bases = [
            (type(of).__name__, of.arguments(), of.state()) for of in bases().values() if isinstance(of, Store)
        ]

    def seeds(self) -> list[bytes]:
        """See :func:`seeds`."""
        return seeds(len(self._bases))

    def run(self, content: bytes) -> str:
        """Restore, and use what has been restored."""
        if not content:
            return SKIPPED
        (name, arguments, state), edits = self._bases[content[0] % len(self._bases)], edits_of(content[1:])
        state = {"state": copy.deepcopy(state)}
        for which, where, kind, choice, number in edits:
            places = list(leaves(state["state"], state, "state"))
            if not places:
                break
            edit_value(*places[which % len(places)], where, kind, choice, number)
        store = store_of(name, copy.deepcopy(arguments))
        try:
            with named("a state"):
                store.restore(state["state"])
        except ObscodecError as error:
            return outcome_of(error)
        except MemoryError:
            if _largest(state) > _SMALL:
                return "MemoryError"
            raise
        use(store, len(content))
        return READ


def _largest(value: Any) -> int:
    """The largest number in JSON values, where the numbers of a list count as multiplied."""
    if isinstance(value, dict):
        return max(map(_largest, value.values()), default=0)
    if isinstance(value, list):
        product = 1
        for item in value:
            product *= max(1, abs(item)) if type(item) in (int, float) and item == item else 1
        return max([int(min(product, 2**70)), *map(_largest, value)])
    if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iu":
        return int(np.abs(value.astype(object)).max())
    return abs(int(min(value, 2**70))) if type(value) in (int, float) and value == value else 0


class Snapshots:
    """Folders with changes in the manifest, in the arrays and in the streams, and with the right checksums."""

    def __init__(self) -> None:
        self._maker = os.getpid()
        self._folder = Path(
            tempfile.mkdtemp(prefix="obscodec-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        )
        self._bases: list[tuple[dict[str, Any], bytes, dict[str, bytes]]] = []
        for saved in bases().values():
            obscodec.save(saved, self._folder / "saved")
            files = {file.name: file.read_bytes() for file in (self._folder / "saved").iterdir()}
            (manifest,) = (json.loads(content) for name, content in files.items() if name.endswith(".json"))
            (arrays,) = (content for name, content in files.items() if name.endswith(".safetensors"))
            segments = {name: content for name, content in files.items() if name.endswith(".segment")}
            self._bases.append((manifest, arrays, segments))
            shutil.rmtree(self._folder / "saved")
        self._loaded = self._folder / "loaded"
        self._loaded.mkdir()
        self._number = count()

    def __del__(self) -> None:
        if os.getpid() == self._maker:  # a forked process has this object too
            shutil.rmtree(self._folder, ignore_errors=True)

    def seeds(self) -> list[bytes]:
        """See :func:`seeds`."""
        return seeds(len(self._bases))

    def run(self, content: bytes) -> str:
        """Load, and use what has been loaded."""
        if not content:
            return SKIPPED
        manifest, arrays, segments = self._bases[content[0] % len(self._bases)]
        manifest, segments = copy.deepcopy(manifest), dict(segments)
        for which, where, kind, choice, number in edits_of(content[1:]):
            if kind & 0x60 == 0x20:
                arrays = _edit_bytes(arrays, where if choice & 1 else 8 + where % 2000, choice, number)
            elif kind & 0x60 == 0x40 and segments:
                name = sorted(segments)[which % len(segments)]
                segments[name] = _edit_bytes(segments[name], where, choice, number)
            else:
                root = {"": manifest}
                edit_value(*_chosen(list(leaves(manifest, root, "")), which), where, kind, choice, number)
                manifest = root[""]
        self._write(manifest, arrays, segments)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loaded = obscodec.load(self._loaded)
            use(loaded, len(content))
        except ObscodecError as error:
            return outcome_of(error)
        except MemoryError:
            if _largest(manifest) > _SMALL:
                return "MemoryError"
            raise
        return READ

    def _write(self, manifest: Any, arrays: bytes, segments: dict[str, bytes]) -> None:
        for file in self._loaded.iterdir():
            file.unlink()
        about = manifest.get("arrays") if isinstance(manifest, dict) else None
        name = about.get("file") if isinstance(about, dict) else None
        if isinstance(about, dict) and isinstance(name, str) and name.startswith("arrays-") and "/" not in name:
            about.update(nbytes=len(arrays), xxh3=xxhash.xxh3_64_hexdigest(arrays))
            with suppress(OSError, ValueError):
                (self._loaded / name).write_bytes(arrays)
        for file_name, segment in segments.items():
            (self._loaded / file_name).write_bytes(_repaired(segment))
        content = json.dumps(manifest).encode()
        (self._loaded / f"generation-00000001-{xxhash.xxh3_64_hexdigest(content)}.json").write_bytes(content)


def _chosen(places: list[tuple[Any, Any]], which: int) -> tuple[Any, Any]:
    return places[which % len(places)] if places else ({"": 0}, "")


def _edit_bytes(content: bytes, where: int, choice: int, number: int) -> bytes:
    changed = bytearray(content)
    at = where % max(1, len(changed))
    kind = choice % 6
    if kind == 0:
        changed[at : at + 1] = bytes([number % 256])
    elif kind == 1:
        changed[at : at + 8] = (number & (1 << 64) - 1).to_bytes(8, "little")
    elif kind == 2:
        changed[at : at + 4] = (_SPECIAL[number % len(_SPECIAL)] & (1 << 32) - 1).to_bytes(4, "little")
    elif kind == 3:
        del changed[at:]
    elif kind == 4:
        changed += bytes(number % 70)
    else:
        changed[at : at + 4] = (number % 64).to_bytes(4, "little")
    return bytes(changed)


def _repaired(segment: bytes) -> bytes:
    """A segment file with the right checksums, as far as its records can be followed."""
    whole, at = bytearray(segment), 32
    number = int.from_bytes(whole[24:32], "little")
    while at + _RECORD.size <= len(whole):
        nbytes, _ = _RECORD.unpack_from(whole, at)
        begin, end = at + _RECORD.size, at + _RECORD.size + nbytes
        if end > len(whole):
            break
        _RECORD.pack_into(whole, at, nbytes, checksum(bytes(whole[begin:end]), number, at))
        at = end
    return bytes(whole)


def snapshot_targets() -> dict[str, Make]:
    """The targets of this file."""
    return {"states": partial(_target, States), "snapshots": partial(_target, Snapshots)}


def _target(make: Callable[[], States | Snapshots]) -> Target:
    of = make()
    return Target(of.seeds, of.run, changed_edits)
