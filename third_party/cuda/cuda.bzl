"""C++ rules that define targets only if there is a CUDA toolkit.

    load("//third_party/cuda:cuda.bzl", "cuda_cc_library", "if_cuda")

    cuda_cc_library(name = "driver", ..., deps = ["@local_cuda//:cuda_header"])
    cc_binary(name = "meshift", deps = [...] + if_cuda(["//comm/nccl"]))
"""

load("@local_cuda//:defs.bzl", "CUDA_ENABLED")

def if_cuda(yes, no = []):
    """`yes` if there is a CUDA toolkit, else `no`."""
    return yes if CUDA_ENABLED else no

def cuda_cc_library(**kwargs):
    if CUDA_ENABLED:
        native.cc_library(**kwargs)

def cuda_cc_binary(**kwargs):
    if CUDA_ENABLED:
        native.cc_binary(**kwargs)

def cuda_cc_test(**kwargs):
    if CUDA_ENABLED:
        native.cc_test(**kwargs)
