"""Signatures: what the constructors of compressed buffers take, of which each passes on what it does not name."""

import os
from collections.abc import Callable, Collection, Iterable
from inspect import Parameter, Signature, isfunction, signature
from typing import Any

from obscodec.arguments import refuse_unknown
from obscodec.buffers import BufferKeywords

_OF_OTHERS = {  # what only others take
    "optimize_memory_usage": "DQN, SAC and others pass to replay buffers: give them CompressedReplayBuffer",
    "gae_lambda": "PPO and A2C pass to rollout buffers: give them CompressedRolloutBuffer",
    "n_steps": "CompressedNStepReplayBuffer takes: pass that as replay_buffer_class",
}
_FORMER = {  # arguments of ``sb3-extra-buffers`` 0.5, and what to use instead
    "compression_method": "name the codec instead, as in codec='zstd:3', or leave it out for the best one",
    "compression_kwargs": "write the level into the codec, as in codec='zstd:3'",
    "decompression_kwargs": "leave it out: a stream says how it is decoded",
    "dtypes": "leave it out: the dtype of the observation space is kept, and codecs find their own",
    "normalize_images": "leave it out: the policy divides images by 255 (normalize_images in policy_kwargs)",
    "output_dtype": "leave it out: samples have the dtype of the observation space, as in Stable-Baselines3",
}


class CompressedKeywords(BufferKeywords[str], total=False):
    """What a compressed buffer takes in addition to the arguments of SB3's buffer, for type checkers and editors."""

    threads: int | None
    spill: str | os.PathLike[str] | None


class PrefetchKeywords(CompressedKeywords, total=False):
    """What a buffer takes that gives batches as SB3's own do."""

    prefetch: bool


def constructor_of(classes: Iterable[type], options: Collection[Parameter] = ()) -> Signature:
    """What the first constructor of some classes takes, and ``options``, if each passes all else on to the next one."""
    in_order = dict[str, Parameter]()
    by_name = {option.name: option.replace(kind=Parameter.KEYWORD_ONLY) for option in options}
    passes_on = Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD
    takes_order = takes_names = True
    for of in classes:
        construct = vars(of).get("_init", vars(of).get("__init__"))
        if not takes_names or not isfunction(construct) or hasattr(construct, "__signature__"):  # of `shown`
            continue
        is_ours = of.__module__.startswith("obscodec_sb3.")  # whose annotations are texts, all of them names
        _, *parameters = signature(construct, eval_str=is_ours).parameters.values()
        for one in parameters:
            if one.kind in passes_on or one.name in in_order or one.name in by_name:
                continue
            if takes_order and one.kind is not Parameter.KEYWORD_ONLY:
                in_order[one.name] = one
            else:
                by_name[one.name] = one.replace(kind=Parameter.KEYWORD_ONLY)
        kinds = {one.kind for one in parameters}
        takes_order, takes_names = takes_order and passes_on[0] in kinds, passes_on[1] in kinds
    rest = [Parameter("kwargs", Parameter.VAR_KEYWORD)] if takes_names else []
    # A user's class may put arguments without a default behind others, which is no error before it is called.
    return Signature([*in_order.values(), *by_name.values(), *rest], __validate_parameters__=False)


def shown(cls: type, takes: Signature) -> Callable[..., None]:
    """A constructor for a class without one, whose signature has all parameters; calls ``_init``, or the next one."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if "_init" in vars(cls):
            cls._init(self, *args, **kwargs)  # type: ignore[attr-defined]
        else:
            super(cls, self).__init__(*args, **kwargs)  # type: ignore[arg-type]

    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    __init__.__signature__ = Signature(  # type: ignore[attr-defined]
        [own, *takes.parameters.values()], __validate_parameters__=False
    )
    return __init__


def refuse_others(buffer: object, names: Collection[str], takes: Signature) -> None:
    """Raise TypeError, which is about ``buffer``, if its constructor does not take arguments of some names."""
    for name in sorted(_FORMER.keys() & {*names}):
        raise TypeError(f"{name}= is an argument of sb3-extra-buffers: {_FORMER[name]}")
    if any(one.kind is Parameter.VAR_KEYWORD for one in takes.parameters.values()):
        return
    unknown, cls = [name for name in names if name not in takes.parameters], type(buffer)
    for name in _OF_OTHERS:
        if name in unknown:
            raise TypeError(f"{cls.__name__} got an unexpected keyword argument {name!r}, which {_OF_OTHERS[name]}")
    refuse_unknown(cls.__name__, unknown, signature(cls).parameters)
