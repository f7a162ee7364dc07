"""As much of PyTorch as nccl_probe uses, over the stand-ins for the driver and NCCL: so that its steps with PyTorch run once without a GPU.

torch_probe_test.sh puts it on Python's path. Not PyTorch's code.
"""

import ctypes
import os
import types

__version__ = "0 (a stand-in)"

_cuda = ctypes.CDLL(os.environ["MESHIFT_CUDA_LIBRARY"])


def _check(result, what):
    if result != 0:
        raise RuntimeError(f"{what}: {result}")


def _set_device(index):
    context = ctypes.c_void_p()
    _check(_cuda.cuInit(0), "cuInit")
    _check(_cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), index), "cuDevicePrimaryCtxRetain")
    _check(_cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")


class _Stream:
    def __init__(self):
        handle = ctypes.c_void_p()
        _check(_cuda.cuStreamCreate(ctypes.byref(handle), 1), "cuStreamCreate")
        self.cuda_stream = handle.value


class _Tensor:
    def __init__(self, values):
        address = ctypes.c_uint64()
        self.count = len(values)
        self.bytes = ctypes.c_size_t(4 * self.count)
        _check(_cuda.cuMemAlloc_v2(ctypes.byref(address), self.bytes), "cuMemAlloc")
        self.address = address.value
        _check(_cuda.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(self.address), (ctypes.c_float * self.count)(*values),
                                          self.bytes, ctypes.c_void_p(_own_stream())), "cuMemcpyHtoDAsync")

    def tolist(self):
        values = (ctypes.c_float * self.count)()
        _check(_cuda.cuMemcpyDtoHAsync_v2(values, ctypes.c_uint64(self.address), self.bytes,
                                          ctypes.c_void_p(_own_stream())), "cuMemcpyDtoHAsync")
        cuda.synchronize()
        return list(values)


_streams = []


def _own_stream():
    if not _streams:
        _streams.append(_Stream())
    return _streams[0].cuda_stream


def device(kind, index):
    return (kind, index)


def zeros(count, device):
    del device
    return _Tensor([0] * count)


def ones(count, device):
    del device
    return _Tensor([1] * count)


cuda = types.SimpleNamespace(
    is_available=lambda: True,
    set_device=_set_device,
    synchronize=lambda: _check(_cuda.cuStreamSynchronize(ctypes.c_void_p(_own_stream())), "cuStreamSynchronize"),
    Stream=_Stream,
)
