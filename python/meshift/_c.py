"""ctypes bindings of those functions and structs of meshift/c.h that this package uses.

MPI and NCCL engines, streams and buffers, for example, have none. Importing this module loads the
library from the folder of this file, or from the path in the environment variable MESHIFT_LIBRARY.
ImportError: the library cannot be loaded, or has another ABI_VERSION. TypeError, ValueError: an
argument cannot be passed to C. python/tests/test_c.py compares these bindings with the header.
"""

from __future__ import annotations

import os
from ctypes import (
    CDLL,
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_void_p,
    sizeof,
    string_at,
)

from meshift.errors import make_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ctypes import Array
    from typing import Any, Iterable, TypeVar

    StructType = TypeVar("StructType", bound="Struct")

ABI_VERSION = 1
MAX_TENSOR_RANK = 16


class Struct(Structure):
    """A struct that begins with its own size."""

    @classmethod
    def make(cls: type[StructType], **fields: object) -> StructType:
        return cls(size=sizeof(cls), **fields)


class MeshInfo(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("num_dims", c_int32),
        ("num_ranks", c_int64),
        ("max_rank", c_int64),
    ]


class Box(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int32),
        ("num_dims", c_int32),
        ("offset", c_int64 * MAX_TENSOR_RANK),
        ("shape", c_int64 * MAX_TENSOR_RANK),
        ("num_elements", c_int64),
        ("num_bytes", c_int64),
    ]


class PlanInfo(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("num_steps", c_int32),
        ("num_meshes", c_int32),
        ("collectives", c_int64),
        ("bytes_sent", c_int64),
        ("est_ns", c_int64),
        ("setup_ns", c_int64),
        ("peak_bytes", c_int64),
        ("workspace_bytes", c_int64),
        ("lower_bound_bytes_sent", c_int64),
        ("lower_bound_est_ns", c_int64),
    ]


class Step(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("op", c_int32),
        ("mesh", c_int32),
        ("mesh_dims", POINTER(c_int32)),
        ("num_mesh_dims", c_size_t),
        ("reduce_op", c_int32),
        ("in_order", c_int32),
        ("divisor", c_int64),
        ("wire_dtype", c_int32),
        ("group_size", c_int64),
        ("groups", c_int64),
        ("bytes_in", c_int64),
        ("bytes_out", c_int64),
        ("bytes_sent", c_int64),
        ("est_ns", c_int64),
    ]


class Alternative(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("verdict", c_char_p),
        ("reason", c_char_p),
        ("num_steps", c_int32),
    ]


class StepTime(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("starts_ns", c_int64),
        ("hops_ns", c_int64),
        ("messages_ns", c_int64),
        ("links_ns", c_int64),
        ("copies_ns", c_int64),
        ("algorithm", c_char_p),
        ("protocol", c_char_p),
        ("slowest_links", c_char_p),
        ("links_per_domain", c_int64),
    ]


class ProgramOptions(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("source_strides", POINTER(c_int64)),
        ("target_strides", POINTER(c_int64)),
        ("one_buffer", c_int32),
        ("consume_source", c_int32),
    ]


class ProgramInfo(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("rank", c_int64),
        ("workspace_bytes", c_int64),
        ("num_groups", c_size_t),
        ("num_instructions", c_size_t),
        ("num_copies", c_size_t),
        ("num_messages", c_size_t),
        ("source_dtype", c_int32),
        ("target_dtype", c_int32),
        ("source_bytes", c_int64),
        ("target_bytes", c_int64),
    ]


class ProgramGroup(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("mesh", c_int32),
        ("mesh_dims", POINTER(c_int32)),
        ("num_mesh_dims", c_size_t),
        ("ranks", POINTER(c_int64)),
        ("num_ranks", c_size_t),
        ("member", c_int32),
        ("number", c_int64),
        ("one_channel", c_int32),
    ]


class Location(Structure):
    _fields_ = [("space", c_int32), ("offset", c_int64)]


class Instruction(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("kind", c_int32),
        ("step", c_int32),
        ("group", c_int32),
        ("src", Location),
        ("dst", Location),
        ("count", c_int64),
        ("dtype", c_int32),
        ("to_dtype", c_int32),
        ("op", c_int32),
        ("divisor", c_int64),
        ("op_block", c_int64),
        ("blocks", c_int64),
        ("block_bytes", c_int64),
        ("counts", POINTER(c_int64)),
        ("num_counts", c_size_t),
        ("first_copy", c_size_t),
        ("num_copies", c_size_t),
        ("first_send", c_size_t),
        ("num_sends", c_size_t),
        ("first_recv", c_size_t),
        ("num_recvs", c_size_t),
    ]


class Copy(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("src", Location),
        ("dst", Location),
        ("num_dims", c_size_t),
        ("shape", POINTER(c_int64)),
        ("src_strides", POINTER(c_int64)),
        ("dst_strides", POINTER(c_int64)),
    ]


class Message(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("peer", c_int32),
        ("at", Location),
        ("count", c_int64),
    ]


class LocalOptions(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("num_ranks", c_int64),
        ("num_workers", c_int32),
        ("control", c_int32),
        ("timeout_ns", c_int64),
    ]


class Redistribution(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("from", c_void_p),
        ("to", c_void_p),
        ("source", c_void_p),
        ("target", c_void_p),
        ("source_strides", POINTER(c_int64)),
        ("target_strides", POINTER(c_int64)),
        ("workspace", c_void_p),
        ("workspace_bytes", c_int64),
        ("consume_source", c_int32),
        ("reduce_dtype", c_int32),
        ("after", c_void_p),
        ("after_run", c_void_p),
        ("has_ticket", c_int32),
        ("ticket", c_int64),
    ]


def _load() -> CDLL:
    path = os.environ.get("MESHIFT_LIBRARY") or os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "libmeshift.so"
    )
    try:
        return CDLL(path)
    except OSError as error:
        raise ImportError(f"meshift's library cannot be loaded: {error}", path=path) from None


lib = _load()

_P = c_void_p  # a handle, a struct, or a pointer to a result
_T = c_char_p  # input text
_I = c_int32
_L = c_int64
_Z = c_size_t

# Functions that may fail and return a code: their arguments without the last one, `char** error`.
_CALLS: dict[str, tuple[Any, ...]] = {
    "mesh_parse": (_T, _P),
    "mesh_union": (_P, _P, _P),
    "mesh_text": (_P, _P),
    "mesh_get_info": (_P, _P),
    "mesh_dim": (_P, _I, _P, _P),
    "mesh_rank_at": (_P, _L, _P),
    "mesh_coordinate": (_P, _L, _P, _Z),
    "sharding_create": (_T, _P, _T, _P),
    "sharding_parse": (_T, _P),
    "sharding_with_placements": (_P, _T, _P),
    "sharding_with_dtype": (_P, _I, _P),
    "sharding_text": (_P, _P),
    "sharding_placements": (_P, _P),
    "sharding_mesh": (_P, _P),
    "sharding_tensor": (_P, _P),
    "sharding_local_box": (_P, _L, _P),
    "dtype_parse": (_T, _P),
    "topology_text": (_T, _P),
    "topology_json": (_T, _P),
    "topology_preset": (_Z, _P),
    "options_create": (_P,),
    "options_set": (_P, _T, _T),
    "plan_make": (_P, _P, _P, _P),
    "plan_read": (_T, _P),
    "plan_text": (_P, _P),
    "plan_json": (_P, _I, _P),
    "plan_fingerprint": (_P, _P),
    "plan_promise": (_P, _P, _P),
    "plan_from": (_P, _P),
    "plan_to": (_P, _P),
    "plan_verify": (_P, _L, _P, _P),
    "plan_get_info": (_P, _P),
    "plan_mesh": (_P, _I, _P),
    "plan_step": (_P, _I, _P),
    "plan_step_text": (_P, _I, _P),
    "plan_step_after": (_P, _I, _P),
    "explanation_create": (_P, _P, _P, _I, _P),
    "explanation_get": (_P, _Z, _P),
    "explanation_plan": (_P, _Z, _P),
    "explanation_step_time": (_P, _Z, _I, _P),
    "plan_lower": (_P, _L, _P, _P),
    "program_text": (_P, _P),
    "program_get_info": (_P, _P),
    "program_get_group": (_P, _Z, _P),
    "program_get_instruction": (_P, _Z, _P),
    "program_get_copy": (_P, _Z, _P),
    "program_get_message": (_P, _Z, _P),
    "local_world_create": (_P, _P),
    "local_world_set_reduction_order": (_P, _I, _L),
    "local_world_engine": (_P, _L, _P),
    "redistributor_create": (_P, _P, _P, _P),
    "redistributor_abort": (_P,),
    "redistribute_plan": (_P, _P, _P, _P),
    "run_wait": (_P,),
}
# All other functions: the return type, then the arguments.
_OTHERS: dict[str, tuple[Any, ...]] = {
    "abi_version": (_I,),
    "version": (_T,),
    "code_name": (_T, _I),
    "free": (None, _P),
    "dtype_name": (_T, _I),
    "op_name": (_T, _I),
    "step_op_name": (_T, _I),
    "instruction_kind_name": (_T, _I),
    "topology_preset_count": (_Z,),
    "explanation_count": (_Z, _P),
    "mesh_destroy": (None, _P),
    "sharding_destroy": (None, _P),
    "options_destroy": (None, _P),
    "plan_destroy": (None, _P),
    "explanation_destroy": (None, _P),
    "program_destroy": (None, _P),
    "local_world_destroy": (None, _P),
    "engine_destroy": (None, _P),
    "redistributor_destroy": (None, _P),
    "run_destroy": (None, _P),
}


def _declare() -> None:
    for name, arguments in _CALLS.items():
        function = getattr(lib, "meshift_" + name)
        function.restype = c_int32
        function.argtypes = (*arguments, c_void_p)
    for name, (result, *others) in _OTHERS.items():
        function = getattr(lib, "meshift_" + name)
        function.restype = result
        function.argtypes = others


_declare()
if lib.meshift_abi_version() != ABI_VERSION:
    raise ImportError(
        f"meshift's library has the binary interface {lib.meshift_abi_version()}, "
        f"but this package needs {ABI_VERSION}"
    )


class Handle:
    """A handle of the library, destroyed with this object. Functions take it as an argument."""

    __slots__ = ("_as_parameter_", "_destroy")

    def __init__(self, kind: str, address: int | None) -> None:
        self._as_parameter_ = address
        self._destroy = getattr(lib, f"meshift_{kind}_destroy")

    def __del__(self) -> None:
        self._destroy(self._as_parameter_)


def call(name: str, *arguments: object) -> None:
    """Calls a function that may fail, and raises its error."""
    error = c_void_p()
    code = getattr(lib, name)(*arguments, byref(error))
    if code != 0:
        number = lib.meshift_code_name(code)
        raise make_error(number.decode() if number else str(code), take(error))


def make(kind: str, name: str, *arguments: object) -> Handle:
    """Returns the handle that a function stores in its last argument but one."""
    address = c_void_p()
    call(name, *arguments, byref(address))
    return Handle(kind, address.value)


def text(name: str, *arguments: object) -> str:
    """Returns the text that a function stores in its last argument but one."""
    given = c_void_p()
    call(name, *arguments, byref(given))
    return take(given)


def take(given: c_void_p) -> str:
    """Copies and frees a text of the library; "" for NULL."""
    if not given.value:
        return ""
    copy = string_at(given.value).decode()
    lib.meshift_free(given)
    return copy


def fill(kind: type[StructType], name: str, *arguments: object) -> StructType:
    """Returns the struct that a function fills, its last argument but one."""
    struct = kind.make()
    call(name, *arguments, byref(struct))
    return struct


_names: dict[tuple[str, int], str | None] = {}


def name_of(kind: str, number: int) -> str | None:
    """The name of an enum value; None for 0. `kind`: "dtype", "op", "step_op", ..."""
    key = (kind, number)
    if key not in _names:
        given = getattr(lib, f"meshift_{kind}_name")(number)
        _names[key] = given.decode() if given else None
    return _names[key]


def dtype_number(name: str) -> int:
    number = c_int32()
    call("meshift_dtype_parse", encode("dtype", name), byref(number))
    return number.value


# Checks of arguments. ctypes would cut a text at its first zero byte, and reduce a number modulo
# 2^64.


def encode(name: str, value: object) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if "\0" in value:
        raise ValueError(f"{name} has a zero byte: {value!r}")
    return value.encode()


def integer(name: str, value: object) -> int:
    """`value` as a 64-bit integer."""
    index = getattr(value, "__index__", None)
    if index is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    number: int = index()
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{name} is {number}, not a number of 64 bits")
    return number


def int64s(name: str, values: Iterable[object]) -> Array[c_int64]:
    """Integers as a ctypes array of int64_t."""
    if not hasattr(values, "__iter__"):
        raise TypeError(f"{name} must be a sequence of int, not {type(values).__name__}")
    numbers = [integer(f"{name}[{i}]", value) for i, value in enumerate(values)]
    return (c_int64 * len(numbers))(*numbers)


def instance(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, not {type(value).__name__}")
