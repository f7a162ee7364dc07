"""Compiles CUDA kernels and embeds them in a C++ library.

    cuda_fatbin_library(
        name = "kernels_image",
        src = "kernels.cu",
        hdrs = ["body.h"],
        symbol = "meshift_cuda_kernels",
    )

gives a cc_library with `extern "C" const unsigned char meshift_cuda_kernels[]`, an image for cuModuleLoadData. Without a CUDA toolkit it
gives nothing.
"""

load("@local_cuda//:defs.bzl", "CUDA_ENABLED")

# Machine code for A100 (serves 8.6 and 8.9 too), H100 and B200 (10.3 too). For all else the driver compiles the PTX, which is of the
# lowest architecture of CUDA 13 so that it serves the most devices. The kernels use nothing newer, so all code comes from this PTX: made
# once, that takes half the time.
_TARGETS = "-gencode=arch=compute_75,code=[compute_75,sm_80,sm_90,sm_100]"

_ASSEMBLY = """    .section .note.GNU-stack, \\"\\", @progbits
    .section .rodata
    .balign 64
    .globl {symbol}
    .type {symbol}, @object
{symbol}:
    .incbin \\"$(execpath {fatbin})\\"
    .size {symbol}, . - {symbol}
"""

def cuda_fatbin_library(name, src, symbol, hdrs = [], nvccopts = [], **kwargs):
    """A library with the image of the kernels in `src`.

    Args:
      name: of the cc_library.
      src: the .cu file.
      symbol: the name of the array.
      hdrs: headers of this project that src includes, directly or not.
      nvccopts: options of nvcc.
      **kwargs: of the cc_library.
    """
    if not CUDA_ENABLED:
        return
    fatbin = name + ".fatbin"
    native.genrule(
        name = name + "_compile",
        srcs = [src] + hdrs,
        outs = [fatbin],
        cmd = " ".join([
            "$(execpath @local_cuda//:bin/nvcc)",
            "-std=c++20 --expt-relaxed-constexpr -I. -O3 -Werror=all-warnings --compress-mode=size",
        ] + nvccopts + [_TARGETS, "-fatbin $(execpath %s) -o $@" % src]),
        message = "Compiling CUDA kernels",
        tools = [
            "@local_cuda//:bin/nvcc",
            "@local_cuda//:nvcc_files",
        ],
        visibility = ["//visibility:private"],
    )
    native.genrule(
        name = name + "_assembly",
        srcs = [fatbin],
        outs = [name + ".s"],
        cmd = "echo \"" + _ASSEMBLY.format(symbol = symbol, fatbin = fatbin) + "\" > $@",
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name,
        srcs = [name + ".s"],
        # clang tells of every option that means nothing to an assembler.
        copts = ["-Wno-unused-command-line-argument"],
        textual_hdrs = [fatbin],
        **kwargs
    )
