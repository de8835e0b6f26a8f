"""A compressed tensor is viewed, indexed, read and written as the tensor, or refuses what it can't do."""

import itertools
import math
import pickle
from collections.abc import Callable
from functools import partial

import numpy as np
import obscodec
import pytest
import torch
from obscodec import FrameStore
from obscodec.torch import CompressedTensor
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict

early = partial(CompressedStorage, decide_after=3, block_frames=2)  # decides, and encodes, in a few steps


def images(*shape: int) -> torch.Tensor:
    return torch.arange(1024 * math.prod(shape)).remainder(251).to(torch.uint8).reshape(*shape, 1024)


def test_a_compressed_tensor_behaves_like_the_tensor() -> None:
    storage = early(6)
    data = images(6, 2)
    storage.set(range(6), TensorDict({"i": data}, [6, 2]))
    leaf = storage._storage["i"]
    assert isinstance(leaf, CompressedTensor)
    assert torch.equal(leaf.transpose(0, 1)[1, 2:4], data.transpose(0, 1)[1, 2:4])
    assert torch.equal(leaf.flatten(0, 1)[torch.tensor([0, 7])], data.flatten(0, 1)[[0, 7]])
    assert torch.equal(torch.stack(leaf.unbind(1)), torch.stack(data.unbind(1)))
    assert torch.equal(leaf.permute(2, 0, 1), data.permute(2, 0, 1))
    assert torch.equal(leaf[1:3].float().mean(-1), data[1:3].float().mean(-1))
    assert (leaf.numpy() == data.numpy()).all()
    assert leaf[0, 1].tolist() == data[0, 1].tolist()
    assert repr(leaf).startswith("CompressedTensor(TensorArray(shape=(6, 2, 1024), dtype=uint8")
    for lazy in (leaf.transpose(0, 1), leaf.flatten(0, 1), leaf.unbind(1)[0], leaf[2], leaf[1:3, None]):
        assert isinstance(lazy, CompressedTensor)


INDEX_PARTS = [
    0,
    -1,
    slice(None),
    slice(1, 3),
    None,
    ...,
    torch.tensor([1, 0, 1]),
    torch.tensor([[1], [0]]),
    [0, 2],
    torch.tensor(1),
    torch.tensor([True, False, True]),
    torch.tensor([1, 0, 1], dtype=torch.uint8),
    True,
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("n_axes", [1, 2, 3])
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_any_index_selects_and_writes_what_torch_does(n_axes: int, length: int) -> None:
    """All indices of up to two parts, a third of those of three, and some of those of four."""
    data = torch.arange(3 * 4 * 3 * 5, dtype=torch.int16).reshape(3, 4, 3, 5)
    store = obscodec.FrameStore(obscodec.Layout(tuple(data.shape[n_axes:]), "int16"), codec="raw", block_frames=1)
    leaf = CompressedTensor(obscodec.TensorArray.zeros(tuple(data.shape[:n_axes]), store))
    n_written, n_valid = 0, 0
    for at, index in enumerate(itertools.product(INDEX_PARTS, repeat=length)):
        if at % (1, 1, 3, 40)[length - 1] or sum(part is ... for part in index) > 1:
            continue
        plain = data.clone()
        try:
            expected = plain[index]
        except (IndexError, RuntimeError):
            continue
        leaf[...] = data
        try:
            assert torch.equal(torch.as_tensor(leaf[index]).clone(), expected), index
        except IndexError:
            assert any(part is True for part in index), index
        n_valid += 1
        value = torch.arange(expected.numel(), dtype=torch.int16).reshape(expected.shape) - 400
        try:
            leaf[index] = value
        except (TypeError, IndexError):
            assert torch.equal(leaf.clone(), data), index
            continue
        plain[index] = value
        n_written += 1
        assert torch.equal(leaf.clone(), plain), index
    assert n_written > n_valid / 10


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "slice": lambda x: x[:, 100:200],
    "step": lambda x: x[..., ::3],
    "integer": lambda x: x[2, 7],
    "flat": lambda x: x.view(-1)[1000:1030],
    "part of an item": lambda x: x[3][5:9],
    "part of a part": lambda x: x[:, 100:200][:, 50],
    "unbound": lambda x: x.unbind(1)[7],
    "diagonal": lambda x: x.diagonal(),
    "dtype": lambda x: x.view(torch.int8),
    "transposed items": lambda x: x.T[:9],
}


@pytest.mark.parametrize("kind", VIEWS)
def test_a_view_of_parts_of_items_can_be_read_but_not_written(kind: str) -> None:
    storage, data, part = early(6), images(6), VIEWS[kind]
    storage.set(range(6), TensorDict({"i": data}, [6]))
    view = part(storage[:]["i"])
    assert isinstance(view, CompressedTensor)
    assert torch.equal(view.clone(), part(data))
    assert torch.equal(view + 1, part(data) + 1)
    assert view.tolist() == part(data).tolist()
    assert torch.equal(pickle.loads(pickle.dumps(view)), part(data))
    for write in (torch.Tensor.zero_, lambda x: x.add_(1), lambda x: x.__setitem__((), 5)):
        with pytest.raises(TypeError, match="a view of parts of compressed items can only be read"):
            write(view)
    assert torch.equal(storage[:]["i"].clone(), data)
    assert torch.equal(view.clone(), part(data))


def test_parts_of_items_are_written_by_an_index_or_an_operation_on_whole_items() -> None:
    storage, data = early(6), images(6)
    storage.set(range(6), TensorDict({"i": data.clone()}, [6]))
    for pixels in (storage[:]["i"], data):
        pixels[3, 5] = 77
        pixels[:, 8:10] = 9
        pixels[:2].add_(1)
    assert torch.equal(storage[:]["i"].clone(), data)


REPLACED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "all": lambda x, new: x.copy_(new.flip(0)),
    "an item": lambda x, new: x[2, 1].copy_(new[0, 0]),
    "an item by another one": lambda x, new: x[0].copy_(x[1]),
    "some, by one": lambda x, new: x[1:3].copy_(new[4]),
    "a row, as floats": lambda x, new: x[3].copy_(new[0].float() * 1.5),
    "an axis before the others": lambda x, new: x.transpose(0, 1).copy_(torch.ones(2, 6, 1024)),
    "by a number": lambda x, new: x[1].fill_(7),
    "by a tensor": lambda x, new: x.fill_(torch.tensor(9)),
    "by zeros": lambda x, new: x[:, 1].zero_(),
}


@pytest.mark.parametrize("what", REPLACED)
def test_whole_items_are_replaced_and_none_is_decoded(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, data, new = early(6), images(6, 2), images(6, 2).flip(-1)
    storage.set(range(6), TensorDict({"i": data.clone()}, [6, 2]))
    leaf = storage._storage["i"]
    wanted = REPLACED[what](data, new)
    with monkeypatch.context() as patch:
        patch.setattr(CompressedTensor, "decoded", None)
        if what != "an item by another one":
            patch.setattr(FrameStore, "read_into", None)
        changed = REPLACED[what](leaf, new)
    assert isinstance(changed, CompressedTensor)
    assert torch.equal(changed.clone(), wanted)
    assert torch.equal(leaf.clone(), data)


@pytest.mark.parametrize("wrong", [lambda x: x.copy_(torch.zeros(3, 3)), lambda x: x.fill_(torch.zeros(2))])
def test_what_does_not_fit_is_refused(wrong: Callable[[torch.Tensor], torch.Tensor]) -> None:
    storage, data = early(6), images(6, 2)
    storage.set(range(6), TensorDict({"i": data}, [6, 2]))
    leaf = storage._storage["i"]
    with pytest.raises(RuntimeError):
        wrong(leaf)
    assert torch.equal(leaf.clone(), data)


@pytest.mark.parametrize("part", [lambda x: x, lambda x: x[:, 3:7]])
def test_what_would_need_memory_of_a_compressed_tensor_is_refused(part: Callable[[torch.Tensor], torch.Tensor]) -> None:
    storage = early(6)
    storage.set(range(6), TensorDict({"i": images(6)}, [6]))
    view = part(storage[:]["i"])
    for use in (
        lambda x: x.share_memory_(),
        torch.from_dlpack,
        np.from_dlpack,
        lambda x: x.apply_(lambda value: value),
        lambda x: x.map_(x, lambda value, _: value),
    ):
        with pytest.raises(TypeError, match="a compressed tensor has no memory"):
            use(view)


def test_the_conjugate_of_complex_items() -> None:
    data = torch.complex(torch.rand(4, 3, 200), torch.rand(4, 3, 200))
    storage = early(4)
    storage.set(range(4), TensorDict({"i": data}, [4]))
    for of in (torch.Tensor.conj, lambda x: x.mH, lambda x: x.conj().imag, lambda x: x.conj()[1:3]):
        assert torch.equal(of(storage[:]["i"]).clone(), of(data).clone())
