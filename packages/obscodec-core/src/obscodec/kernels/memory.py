"""Memory by address, for kernels: C's operations as numba intrinsics.

An address is an ``int64``. Nothing here is checked: kernels check positions and lengths before they use these. The
types for Python are in ``memory.pyi``.
"""

import inspect
from typing import Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from obscodec.kernels.compiler import inlined

LINE_NBYTES: Final = 64  # what a processor loads and stores at once
_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)


def emits(signature):
    """Make an intrinsic of a function that emits its instructions; ``signature`` is the intrinsic's numba type.

    The function takes an LLVM builder and the values of the arguments, and returns the value of the result, or None.
    """

    def decorate(emit):
        def codegen(context, builder, signature, args):
            result = emit(builder, *args)
            return context.get_dummy_value() if result is None else result

        def typed(typingctx, *args):
            return signature, codegen

        typed.__name__, typed.__doc__ = emit.__name__, emit.__doc__
        typed.__signature__ = inspect.signature(emit)  # in which numba counts the arguments
        return intrinsic(typed)

    return decorate


def _pointer(builder, address, pointee=_BYTE):
    return builder.inttoptr(address, pointee.as_pointer())


def _loader(bits, kind=types.uint64):
    @emits(kind(types.int64))
    def load(builder, address):
        value = builder.load(_pointer(builder, address, ir.IntType(bits)), align=1)
        return builder.sext(value, _WORD) if kind.signed else builder.zext(value, _WORD)

    return load


def _storer(bits):
    @emits(types.void(types.int64, types.uint64))
    def store(builder, address, value):
        kind = ir.IntType(bits)
        builder.store(builder.trunc(value, kind), _pointer(builder, address, kind), align=1)

    return store


load_u8 = _loader(8)
load_u16 = _loader(16)
load_u32 = _loader(32)
load_u64 = _loader(64)
load_i8 = _loader(8, types.int64)
load_i32 = _loader(32, types.int64)
store_u8 = _storer(8)
store_u16 = _storer(16)
store_u32 = _storer(32)
store_u64 = _storer(64)


@emits(types.voidptr(types.int64))
def _pointer_to(builder, address):
    return _pointer(builder, address)


@inlined
def bytes_at(address: int, shape: int | tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """The array ``u8[*shape]`` at an address, which has no owner; so are those of the next functions."""
    return carray(_pointer_to(address), shape, np.uint8)


@inlined
def int32s_at(address: int, shape: int | tuple[int, ...]) -> npt.NDArray[np.int32]:
    """``i32[*shape]``."""
    return carray(_pointer_to(address), shape, np.int32)


@inlined
def int64s_at(address: int, shape: int | tuple[int, ...]) -> npt.NDArray[np.int64]:
    """``i64[*shape]``."""
    return carray(_pointer_to(address), shape, np.int64)


@inlined
def bools_at(address: int, shape: int | tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """``bool[*shape]``."""
    return carray(_pointer_to(address), shape, np.bool_)


@intrinsic
def address(typingctx, array):
    """Where an array begins. Signed: numba makes a float of the sum of an unsigned and a signed integer."""

    def codegen(context, builder, signature, args):
        return builder.ptrtoint(context.make_array(array)(context, builder, args[0]).data, _WORD)

    return types.int64(array), codegen


def _converter(kind):
    def typed(typingctx, value):
        def codegen(context, builder, signature, args):
            return context.cast(builder, args[0], value, kind)

        return kind(value), codegen

    return intrinsic(typed)


signed = _converter(types.int64)  # an ``int64`` of the same 64 bits
unsigned = _converter(types.uint64)  # a ``uint64``


@emits(types.void(types.int64, types.int64, types.int64))
def copy(builder, target, source, nbytes):
    """``memcpy(target, source, nbytes)``."""
    cgutils.raw_memcpy(builder, _pointer(builder, target), _pointer(builder, source), nbytes, 1)


@emits(types.void(types.int64, types.int64, types.int64))
def move(builder, target, source, nbytes):
    """``memmove(target, source, nbytes)``: the two may overlap."""
    cgutils.raw_memmove(builder, _pointer(builder, target), _pointer(builder, source), nbytes, 1)


@emits(types.void(types.int64, types.int64))
def fill_zeros(builder, target, nbytes):
    """``memset(target, 0, nbytes)``."""
    cgutils.memset(builder, _pointer(builder, target), nbytes, 0)


@emits(types.int64(types.uint64))
def trailing_zeros(builder, value):
    """How many low bits of a ``u64`` are zero; 64 for zero."""
    return builder.cttz(value, ir.Constant(ir.IntType(1), 0))


@emits(types.void(types.int64))
def prefetch(builder, address):
    """Load the 64 bytes around an address into the caches, for a read soon. The address may be invalid."""
    pointer, number = _BYTE.as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
    function = builder.module.declare_intrinsic("llvm.prefetch", (pointer,), kind)
    builder.call(function, [_pointer(builder, address), number(0), number(3), number(1)])  # to read, and keep, data


@emits(types.void(types.int64, types.int64))
def copy_line_past_caches(builder, target, source):
    """Copy 64 bytes to an address that is a multiple of 64, straight to memory; call :func:`fence` afterwards."""
    line = ir.VectorType(_BYTE, LINE_NBYTES)
    value = builder.load(_pointer(builder, source, line), align=1)
    store = builder.store(value, _pointer(builder, target, line), align=LINE_NBYTES)
    store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))


@emits(types.void())
def fence(builder):
    """Complete all stores before this point before any store after it."""
    builder.fence("seq_cst")
