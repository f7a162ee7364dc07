"""Tests of the NCCL engine over the stand-in libraries, whose ranks are threads.

    nccl_test(
        name = "list_test",
        deps = ["//testing/internal/conformance:checks"],
    )

is a test of list_test.cc. Without a CUDA toolkit there is none.
"""

load("//testing/fake_gpu:fake_gpu.bzl", "FAKE_GPU", "FAKE_GPU_ENV")
load("//third_party/cuda:cuda.bzl", "cuda_cc_test")

def nccl_test(name, deps, devices = 8, env = {}, **kwargs):
    """A test that has the stand-ins as data.

    Args:
      name: of the test, and of its file.
      deps: besides the engine's threads and googletest.
      devices: how many the stand-in has.
      env: more variables.
      **kwargs: as of any test.
    """
    cuda_cc_test(
        name = name,
        srcs = [name + ".cc"],
        data = FAKE_GPU,
        env = dict(FAKE_GPU_ENV, MESHIFT_FAKE_DEVICES = str(devices), **env),
        deps = deps + [
            "//testing/internal/nccl:nccl_threads",
            "//third_party:gtest_main",
        ],
        **kwargs
    )
