"""The stand-ins for the CUDA driver and NCCL, for tests that load them.

    load("//testing/fake_gpu:fake_gpu.bzl", "FAKE_GPU", "FAKE_GPU_ENV")

    cuda_cc_test(..., data = FAKE_GPU, env = FAKE_GPU_ENV)
"""

FAKE_GPU = [
    "//testing/fake_gpu:libfake_cuda.so",
    "//testing/fake_gpu:libfake_nccl.so",
]

FAKE_GPU_ENV = {
    "MESHIFT_CUDA_LIBRARY": "testing/fake_gpu/libfake_cuda.so",
    "MESHIFT_NCCL_LIBRARY": "testing/fake_gpu/libfake_nccl.so",
}
