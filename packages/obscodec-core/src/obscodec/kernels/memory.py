"""Memory by address, for kernels: what C does with pointers, as numba intrinsics.

An address is an ``int64``. Nothing here is checked: the kernels check positions and lengths before they come here.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from obscodec.kernels.compiler import inlined

_BYTE = ir.IntType(8)
LINE_NBYTES: Final = 64  # what a processor loads and stores at once


def _pointer(builder: Any, address: Any, pointee: ir.Type) -> Any:
    return builder.inttoptr(address, pointee.as_pointer())


def _loader(bits: int, numba_type: types.Type) -> Any:
    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.load(_pointer(builder, args[0], ir.IntType(bits)), align=1)
            return builder.zext(value, ir.IntType(64)) if bits < 64 else value

        return numba_type(types.int64), codegen

    return load


def _storer(bits: int) -> Any:
    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.trunc(args[1], ir.IntType(bits)) if bits < 64 else args[1]
            builder.store(value, _pointer(builder, args[0], ir.IntType(bits)), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.uint64), codegen

    return store


@inlined
def address(array: npt.NDArray[np.generic]) -> int:
    """Where an array begins. Signed: numba makes a float of the sum of an unsigned and a signed integer."""
    return np.int64(array.ctypes.data)


@inlined
def signed(value: int) -> int:
    """``value`` as ``int64``."""
    return np.int64(value)


@inlined
def unsigned(value: int) -> int:
    """``value`` as ``uint64``."""
    return np.uint64(value)


load_u8 = _loader(8, types.uint64)
load_u16 = _loader(16, types.uint64)
load_u64 = _loader(64, types.uint64)
store_u8 = _storer(8)
store_u64 = _storer(64)


@intrinsic
def copy(typingctx: Any, target: Any, source: Any, nbytes: Any) -> Any:
    """``memcpy(target, source, nbytes)``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        cgutils.raw_memcpy(builder, _pointer(builder, args[0], _BYTE), _pointer(builder, args[1], _BYTE), args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def move(typingctx: Any, target: Any, source: Any, nbytes: Any) -> Any:
    """``memmove(target, source, nbytes)``: the two may overlap."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        cgutils.raw_memmove(builder, _pointer(builder, args[0], _BYTE), _pointer(builder, args[1], _BYTE), args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def fill_zeros(typingctx: Any, target: Any, nbytes: Any) -> Any:
    """``memset(target, 0, nbytes)``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        cgutils.memset(builder, _pointer(builder, args[0], _BYTE), args[1], 0)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def trailing_zeros(typingctx: Any, value: Any) -> Any:
    """How many low bits of a ``u64`` are zero; 64 for zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


@intrinsic
def prefetch(typingctx: Any, address: Any) -> Any:
    """Ask for the 64 bytes around an address, which are about to be read. Does nothing where there is no memory."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, number = _BYTE.as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", (pointer,), kind)
        read, keep, data = number(0), number(3), number(1)
        builder.call(function, [_pointer(builder, args[0], _BYTE), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def copy_line_past_caches(typingctx: Any, target: Any, source: Any) -> Any:
    """Copy 64 bytes to an address that is a multiple of 64, straight to memory; ask for a :func:`fence` at the end."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        line = ir.VectorType(_BYTE, LINE_NBYTES)
        value = builder.load(_pointer(builder, args[1], line), align=1)
        store = builder.store(value, _pointer(builder, args[0], line), align=LINE_NBYTES)
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def fence(typingctx: Any) -> Any:
    """Have all stores before it arrive before those behind it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen
