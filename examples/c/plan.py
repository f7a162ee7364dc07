"""Meshift from Python, with ctypes only: a plan, its proof, the local boxes, a program, and a
redistribution.

    ./bazelw build //:libmeshift_c.so
    python3 examples/c/plan.py bazel-bin/libmeshift_c.so
"""

import ctypes
import sys
from array import array

OK, INVALID_ARGUMENT, FAILED_PRECONDITION = 0, 3, 9
MAX_TENSOR_RANK = 16


class Box(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("dtype", ctypes.c_int32),
        ("num_dims", ctypes.c_int32),
        ("offset", ctypes.c_int64 * MAX_TENSOR_RANK),
        ("shape", ctypes.c_int64 * MAX_TENSOR_RANK),
        ("num_elements", ctypes.c_int64),
        ("num_bytes", ctypes.c_int64),
    ]


class LocalOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("num_ranks", ctypes.c_int64),
        ("num_workers", ctypes.c_int32),
        ("control", ctypes.c_int32),
        ("timeout_ns", ctypes.c_int64),
    ]


class Redistribution(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("from_", ctypes.c_void_p),
        ("to", ctypes.c_void_p),
        ("source", ctypes.c_void_p),
        ("target", ctypes.c_void_p),
        ("source_strides", ctypes.c_void_p),
        ("target_strides", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_int64),
        ("consume_source", ctypes.c_int32),
        ("reduce_dtype", ctypes.c_int32),
        ("after", ctypes.c_void_p),
        ("after_run", ctypes.c_void_p),
        ("has_ticket", ctypes.c_int32),
        ("ticket", ctypes.c_int64),
    ]


class MeshiftError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Library:
    """The functions of meshift/c.h; errors are MeshiftError."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.meshift_version.restype = ctypes.c_char_p
        self.lib.meshift_free.argtypes = [ctypes.c_void_p]
        self.lib.meshift_free.restype = None

    def call(self, name, *arguments):
        """Calls a function that may fail. ctypes passes handles and integers unchanged."""
        error = ctypes.c_void_p()
        code = getattr(self.lib, name)(*arguments, ctypes.byref(error))
        message = self.take(error)
        if code != OK:
            raise MeshiftError(code, message)

    def make(self, name, *arguments):
        """Returns the handle that a function stores in its last argument but one."""
        handle = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(handle))
        return handle

    def text(self, name, *arguments):
        return self.take(self.make(name, *arguments))

    def take(self, text):
        if not text:
            return ""
        copy = ctypes.string_at(text).decode()
        self.lib.meshift_free(text)
        return copy

    def destroy(self, kind, *handles):
        function = getattr(self.lib, "meshift_%s_destroy" % kind)
        function.argtypes = [ctypes.c_void_p]
        function.restype = None
        for handle in handles:
            function(handle)


def local_box(meshift, sharding, rank):
    box = Box(size=ctypes.sizeof(Box))
    meshift.call("meshift_sharding_local_box", sharding, ctypes.c_int64(rank), ctypes.byref(box))
    return box


def redistribute(meshift, mesh, source, target, num_ranks):
    """Runs the redistribution on ranks in this process, all driven by this thread. Returns their
    targets."""
    options = LocalOptions(size=ctypes.sizeof(LocalOptions), num_ranks=num_ranks)
    world = meshift.make("meshift_local_world_create", ctypes.byref(options))
    engines, redistributors, runs, tensors = [], [], [], []
    for rank in range(num_ranks):
        engines.append(meshift.make("meshift_local_world_engine", world, ctypes.c_int64(rank)))
        redistributors.append(meshift.make("meshift_redistributor_create", mesh, engines[rank], None))
        # With `P`, every rank holds ones everywhere. Calls only enqueue work on streams.
        tensors.append((array("f", [1.0] * local_box(meshift, source, rank).num_elements),
                        array("f", [0.0] * local_box(meshift, target, rank).num_elements)))
        what = Redistribution(size=ctypes.sizeof(Redistribution), from_=source, to=target,
                              source=tensors[rank][0].buffer_info()[0], target=tensors[rank][1].buffer_info()[0])
        runs.append(meshift.make("meshift_redistribute", redistributors[rank], ctypes.byref(what)))
    for run in runs:
        meshift.call("meshift_run_wait", run)
    meshift.destroy("run", *runs)
    meshift.destroy("redistributor", *redistributors)
    meshift.destroy("engine", *engines)
    meshift.destroy("local_world", world)
    return [target for _, target in tensors]


def main(path):
    meshift = Library(path)
    mesh = meshift.make("meshift_mesh_parse", b"dp=2,tp=4")
    source = meshift.make("meshift_sharding_create", b"f32[10,6]", mesh, b"P,P")
    target = meshift.make("meshift_sharding_with_placements", source, b"S(0),R")

    options = meshift.make("meshift_options_create")
    meshift.call("meshift_options_set", options, b"topology", b"nvlink=4")
    meshift.call("meshift_options_set", options, b"max_memory", b"1MiB")
    plan = meshift.make("meshift_plan_make", source, target, options)
    meshift.call("meshift_plan_verify", plan, ctypes.c_int64(0), None, None)
    print(meshift.text("meshift_plan_text", plan), end="")
    program = meshift.make("meshift_plan_lower", plan, ctypes.c_int64(5), None)
    print(meshift.text("meshift_program_text", program), end="")
    meshift.destroy("program", program)

    # A plan that was read back is the same; one with a changed text breaks a rule.
    text = meshift.text("meshift_plan_text", plan)
    again = meshift.make("meshift_plan_read", meshift.text("meshift_plan_json", plan, ctypes.c_int32(-1)).encode())
    assert meshift.text("meshift_plan_text", again) == text
    wrong = meshift.make("meshift_plan_read", text.replace("P,P -> S(0),R", "P,P -> R,R").encode())
    rule = ctypes.c_void_p()
    try:
        meshift.call("meshift_plan_verify", wrong, ctypes.c_int64(0), ctypes.byref(rule), None)
        raise AssertionError("a wrong plan was proven")
    except MeshiftError as error:
        assert error.code == FAILED_PRECONDITION
        print("a wrong plan breaks the rule %s: %s" % (meshift.take(rule), error))
    try:
        meshift.call("meshift_options_set", options, b"max_memory", b"much")
        raise AssertionError("a wrong option was taken")
    except MeshiftError as error:
        assert error.code == INVALID_ARGUMENT
        print("refused: %s" % error)

    for rank, values in enumerate(redistribute(meshift, mesh, source, target, 8)):
        box = local_box(meshift, target, rank)
        assert box.shape[0] == 5 and box.shape[1] == 6 and box.offset[0] == 5 * (rank // 4)
        assert list(values) == [8.0] * 30, (rank, values)
    print("meshift %s: 8 ranks hold 8" % meshift.lib.meshift_version().decode())

    meshift.destroy("plan", wrong, again, plan)
    meshift.destroy("options", options)
    meshift.destroy("sharding", target, source)
    meshift.destroy("mesh", mesh)


if __name__ == "__main__":
    main(sys.argv[1])
