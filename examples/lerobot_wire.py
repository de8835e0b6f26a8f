# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "obscodec",
#     "numba==0.68.1",
#     "numpy==2.4.6",
#     "torch==2.15.0",
#     "typer==0.29.2",
# ]
#
# [tool.uv.sources]  # of this checkout
# obscodec = { path = "../packages/obscodec-core", editable = true }
# ///
"""What LeRobot's actor sends to its learner, with each image encoded once.

uv run examples/lerobot_wire.py --steps 150

``transitions_to_bytes`` and ``bytes_to_transitions`` take the place of two functions of ``lerobot.transport.utils``,
which call ``torch.save`` and ``torch.load``. They were compared with those of LeRobot 0.4.4 and 0.6.1 in November 2026;
neither version installs with this torch. Where actor and learner are started, or in these modules themselves::

    import lerobot.rl.actor, lerobot.rl.learner, lerobot_wire

    lerobot.rl.actor.transitions_to_bytes = lerobot_wire.transitions_to_bytes
    lerobot.rl.learner.bytes_to_transitions = lerobot_wire.bytes_to_transitions

The program sends transitions of two cameras that move through a textured scene, compares all that arrives, and prints
what a transition takes: with images as LeRobot makes them, floats ``k / 255``; with bytes; and with images that LeRobot
also resizes, whose floats are other numbers. ``torch.save`` writes a tensor once that is both a next state and a state,
but twice if it was copied from a GPU. The first message takes longer: ``auto`` chooses the codec, and does so again
whenever twice as many images have come.
"""

import io
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import typer
from obscodec import CorruptStream, Layout, TensorArray
from obscodec.arrays import DeferredRead
from obscodec.buffers import MIN_COMPRESSED_NBYTES
from obscodec.layout import as_array
from obscodec.stores import StoragePlan, StoreOptions, find_plan
from obscodec.wire import EncodedBatch
from torch.nn.functional import interpolate

Transition = dict[str, Any]
Kind = tuple[str, torch.dtype, torch.Size, str]  # of tensors that are encoded together: last key, dtype, shape, device

OPTIONS = StoreOptions()
MAX_BYTES = 4 << 30  # the most bytes that the tensors of a message may have
N_LOOKED_AT = 32  # images, to choose how they are stored
PLANS: dict[Kind, tuple[StoragePlan, int, int]] = {}  # the choice, how many images had come by then, and until now


def transitions_to_bytes(transitions: list[Transition]) -> bytes:
    """Transitions as bytes. Tensors of 1 KiB or more are encoded, those that are equal and of neighbours once.

    Args:
        transitions: of tensors, numbers, flags and texts, in dictionaries, lists and tuples. Tensors with the same key
            are compared: the images of a camera in ``state`` with those in ``next_state``.

    Raises:
        TypeError: there is another value, such as an array of numpy, or a key that is no text.
    """
    kinds: dict[Kind, list[torch.Tensor]] = {}

    def node(of: Any, key: str) -> Any:
        if isinstance(of, torch.Tensor):
            kind = key, of.dtype, of.shape, str(of.device)
            kinds.setdefault(kind, []).append(of.detach())
            return {"next": [*kinds].index(kind)}
        if type(of) is dict and all(type(name) is str for name in of):
            return {"dict": [[name, node(value, name)] for name, value in of.items()]}
        if type(of) in (list, tuple):
            return {type(of).__name__: [node(value, key) for value in of]}
        if type(of) is float:
            return {"float": struct.pack("<d", of).hex()}  # JSON has no number for each NaN
        if of is None or type(of) in (bool, int, str):
            return of
        raise TypeError(f"transitions have tensors, numbers, flags and texts, got {key!r}: a {type(of).__name__}")

    nodes = [node(transition, "") for transition in transitions]
    columns = [_column(kind, as_array(torch.stack(of).cpu())) for kind, of in kinds.items()]
    devices = [device for *_, device in kinds]
    return EncodedBatch.of(DeferredRead(lambda: [nodes, devices, [column[...] for column in columns]])).to_bytes()


def _column(kind: Kind, array: np.ndarray) -> TensorArray | np.ndarray:
    """Tensors ``[n, *shape]`` in the order of time; compressed if they are large."""
    layout = Layout(array.shape[1:], array.dtype)
    if layout.nbytes < MIN_COMPRESSED_NBYTES:
        return array
    plan, n_then, n = PLANS.get(kind, (None, 0, 0))
    n += len(array)
    if plan is None or n >= 2 * n_then:  # the first images may be unlike the others
        some = array[:N_LOOKED_AT]
        plan, n_then = find_plan(some, np.zeros(len(some), np.int64), OPTIONS), n
    PLANS[kind] = plan, n_then, n
    store = plan.new_store(layout, OPTIONS)
    return TensorArray(store.append(array, 0), store)


def bytes_to_transitions(buffer: bytes) -> list[Transition]:
    """The transitions of ``transitions_to_bytes``, possibly from a stranger.

    Tensors are contiguous and have no gradients. Those of a camera are views of one memory, as long as one is there.

    Raises:
        CorruptStream: the bytes are truncated or altered, or no transitions, or have more than ``MAX_BYTES`` decoded.
    """
    try:
        nodes, devices, columns = EncodedBatch.from_bytes(buffer, max_bytes=MAX_BYTES).read()
        rows = [_rows(array, device) for array, device in zip(columns, devices, strict=True)]
        return [_built(node, rows) for node in nodes]
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, LookupError, RuntimeError, StopIteration, TypeError, ValueError, struct.error) as error:
        raise CorruptStream(f"no transitions: {error}") from error


def _rows(array: np.ndarray, device: str) -> Iterator[torch.Tensor]:
    """The tensors of an array ``[n, *shape]`` of any dtype of torch."""
    of_bytes = torch.from_numpy(np.ravel(array).view(np.uint8))
    column = of_bytes.view(getattr(torch, array.dtype.name)).view(array.shape).to(device)
    return (column[k] for k in range(len(column)))  # one after the other: a stranger may say that there are many


def _built(node: Any, rows: list[Iterator[torch.Tensor]]) -> Any:
    match node:
        case {"next": k}:
            return next(rows[k])
        case {"dict": items}:
            return {name: _built(value, rows) for name, value in items}
        case {"list": values} | {"tuple": values}:
            built = [_built(value, rows) for value in values]
            return built if "list" in node else tuple(built)
        case {"float": digits}:
            return struct.unpack("<d", bytes.fromhex(digits))[0]
        case None | bool() | int() | str():
            return node
    raise ValueError(f"there is {node!r}")


def texture(side: int, rng: np.random.Generator) -> torch.Tensor:
    """A picture ``f32[3, side, side]`` with details of all sizes."""
    picture = torch.full((1, 3, side, side), 128.0)
    for size in (2, 4, 8, 16, 64, 256):
        patches = torch.from_numpy(rng.normal(scale=2 * size**0.6, size=(1, 3, side // size, side // size)))
        picture += interpolate(patches.float(), (side, side), mode="bilinear")
    return picture[0]


def as_floats(image: torch.Tensor) -> torch.Tensor:
    """As LeRobot makes an image for its policy."""
    return image / 255.0


def as_bytes(image: torch.Tensor) -> torch.Tensor:
    """As cameras give it."""
    return image


def resized(image: torch.Tensor) -> torch.Tensor:
    """As LeRobot makes it if it also resizes images: the floats are no ``k / 255``."""
    return interpolate(image / 255.0, (112, 112), mode="bilinear", antialias=True)


def played(steps: int, processed: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[list[Transition]]:
    """Episodes of 10 to 50 transitions; the actor sends each when it has ended."""
    rng = np.random.default_rng(0)
    pictures = {f"observation.images.{name}": texture(512, rng) for name in ("front", "wrist")}

    def observed(k: int) -> dict[str, torch.Tensor]:
        images = {}
        for n, (key, picture) in enumerate(pictures.items()):
            y, x = (int(192 * (1 + turn(k / (40 - 20 * n)))) for turn in (np.sin, np.cos))
            noise = torch.from_numpy(rng.normal(scale=1, size=(3, 128, 128)))  # of the sensor
            seen = (picture[:, y : y + 128, x : x + 128] + noise).round().clamp(0, 255).to(torch.uint8)
            images[key] = processed(seen[None])
        return {"observation.state": torch.from_numpy(rng.normal(size=(1, 6))).float(), **images}

    k = 0
    while k < steps:
        n, state, episode = int(rng.integers(10, 51)), observed(k), []
        for step in range(k, k + n):
            following = observed(step + 1)
            episode.append(
                {
                    "state": state,
                    "action": torch.from_numpy(rng.normal(size=(1, 4))).float(),
                    "reward": float(step == k + n - 1),
                    "next_state": following,
                    "done": step == k + n - 1,
                    "truncated": False,
                    "complementary_info": {"discrete_penalty": torch.tensor([0.0])},
                }
            )
            state = following
        yield episode
        k += n


def saved(transitions: list[Transition]) -> bytes:
    """As LeRobot sends them."""
    file = io.BytesIO()
    torch.save(transitions, file)
    return file.getvalue()


def loaded(buffer: bytes) -> list[Transition]:
    """As LeRobot receives them."""
    transitions: list[Transition] = torch.load(io.BytesIO(buffer), weights_only=True)
    return transitions


def are_same(one: Any, other: Any) -> bool:
    """Whether two values are of the same type, and of the same bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        same = (one.dtype, one.shape, one.device) == (other.dtype, other.shape, other.device)
        return same and one.numpy().tobytes() == other.numpy().tobytes()
    if isinstance(one, dict):
        return [*one] == [*other] and all(are_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(are_same, one, other))
    return bool(one == other)


def timed(call: Callable[[Any], Any], given: Any, spent: list[float]) -> Any:
    """What a call returns; ``spent`` gets its seconds."""
    begin = time.perf_counter()
    result = call(given)
    spent.append(time.perf_counter() - begin)
    return result


def apart(transitions: list[Transition]) -> list[Transition]:
    """The same with each image by itself, as LeRobot copies them from a GPU; ``torch.save`` then writes each twice."""
    names = "state", "next_state"
    return [of | {name: {key: x.clone() for key, x in of[name].items()} for name in names} for of in transitions]


def main(steps: int = 150) -> None:
    """Send transitions in each way, compare them, and print what each way takes."""
    torch.set_num_threads(1)
    print(f"{'for each transition':<32} {'kB':>7} {'write, ms':>9} {'read, ms':>8} {'first write, ms':>15}")
    for processed in (as_floats, as_bytes, resized):
        episodes = [*played(steps, processed)]
        ways = {
            "torch.save": (episodes, saved, loaded),
            "torch.save, from a GPU": ([apart(episode) for episode in episodes], saved, loaded),
            "encoded": (episodes, transitions_to_bytes, bytes_to_transitions),
        }
        n = np.array([len(episode) for episode in episodes])
        for name, (given, write, read) in ways.items():
            writing: list[float] = []
            reading: list[float] = []
            messages = [timed(write, episode, writing) for episode in given]
            arrived = [timed(read, message, reading) for message in messages]
            if not are_same(arrived, episodes):
                raise AssertionError(f"what {name} sent is not what arrived")
            kb, first = sum(map(len, messages)) / n.sum() / 1000, 1000 * writing[0] / n[0]
            ms = [1000 * np.median(spent / n) for spent in (writing, reading)]
            print(f"{processed.__name__:<9} {name:<22} {kb:7.1f} {ms[0]:9.2f} {ms[1]:8.2f} {first:15.1f}")


if __name__ == "__main__":
    typer.run(main)
