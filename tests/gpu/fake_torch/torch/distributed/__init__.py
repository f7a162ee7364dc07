"""torch.distributed of the stand-in: one group of all ranks, with one communicator."""

import ctypes
import os
import socket
import time
import types
import urllib.parse

import torch

_nccl = ctypes.CDLL(os.environ["MESHIFT_NCCL_LIBRARY"])
_UNSET = -(2**31)
_IN_PROGRESS = 7


class _Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class _Config(ctypes.Structure):
    """ncclConfig_t of NCCL 2.28."""

    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint)] + [
        (name, ctypes.c_int) for name in ("blocking", "cga", "min_ctas", "max_ctas")] + [
        ("net_name", ctypes.c_char_p)] + [(name, ctypes.c_int) for name in ("share", "traffic")] + [
        ("comm_name", ctypes.c_char_p)] + [
        (name, ctypes.c_int) for name in ("collnet", "policy", "shrink", "nvls", "channels", "nvlink")]


_group = types.SimpleNamespace(rank=0, comm=ctypes.c_void_p())


def _exchange_id(address, port, rank, ranks):
    """Rank 0's id, by a socket of its own."""
    unique = _Id()
    if rank == 0:
        torch._check(_nccl.ncclGetUniqueId(ctypes.byref(unique)), "ncclGetUniqueId")
        with socket.create_server((address, port)) as server:
            for _ in range(ranks - 1):
                peer, _ = server.accept()
                with peer:
                    peer.sendall(bytes(unique))
        return unique
    for _ in range(1000):
        try:
            with socket.create_connection((address, port)) as connection:
                data = b""
                while len(data) < 128:
                    data += connection.recv(128 - len(data))
                return _Id.from_buffer_copy(data)
        except OSError:
            time.sleep(0.01)
    raise RuntimeError("nobody listens")


def _settle():
    state = ctypes.c_int(_IN_PROGRESS)
    while state.value == _IN_PROGRESS:
        torch._check(_nccl.ncclCommGetAsyncError(_group.comm, ctypes.byref(state)), "ncclCommGetAsyncError")
    torch._check(state.value, "NCCL")


def init_process_group(backend, init_method=None, rank=-1, world_size=-1, device_id=None):
    assert backend == "nccl" and device_id is not None
    if init_method is None:
        # Different from the port of the job's control channel.
        init_method = f"tcp://{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT'])}"
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    url = urllib.parse.urlparse(init_method)
    unique = _exchange_id(url.hostname, url.port, rank, world_size)
    config = _Config(size=ctypes.sizeof(_Config), magic=0xCAFEBEEF, version=22809)
    for name, kind in _Config._fields_[3:]:
        if kind is ctypes.c_int:
            setattr(config, name, _UNSET)
    config.blocking = 0 if os.environ.get("TORCH_NCCL_USE_COMM_NONBLOCKING") == "1" else 1
    _group.rank = rank
    result = _nccl.ncclCommInitRankConfig(ctypes.byref(_group.comm), world_size, unique, rank, ctypes.byref(config))
    if result != _IN_PROGRESS:
        torch._check(result, "ncclCommInitRankConfig")
    _settle()


def all_reduce(tensor):
    result = _nccl.ncclAllReduce(ctypes.c_void_p(tensor.address), ctypes.c_void_p(tensor.address), ctypes.c_size_t(tensor.count),
                                 7, 0, _group.comm, ctypes.c_void_p(torch._own_stream()))
    if result != _IN_PROGRESS:
        torch._check(result, "ncclAllReduce")
    _settle()


def get_rank():
    return _group.rank


def destroy_process_group():
    torch.cuda.synchronize()
    result = _nccl.ncclCommFinalize(_group.comm)
    if result != _IN_PROGRESS:
        torch._check(result, "ncclCommFinalize")
    _settle()
    torch._check(_nccl.ncclCommDestroy(_group.comm), "ncclCommDestroy")


distributed_c10d = types.SimpleNamespace(
    _get_default_group=lambda: types.SimpleNamespace(
        _get_backend=lambda device: types.SimpleNamespace(_comm_ptr=lambda: _group.comm.value)))
