"""Compiles CUDA kernels and embeds them in a C++ library.

    cuda_fatbin_library(
        name = "kernels_image",
        src = "kernels.cu",
        hdrs = ["body.h"],
        symbol = "meshift_cuda_kernels",
    )

defines a cc_library with `extern "C" const unsigned char meshift_cuda_kernels[],
meshift_cuda_kernels_ptx[]`, images for cuModuleLoadData: the first for drivers of the toolkit's
major version, the second for older drivers, which cannot load a newer toolkit's machine code.
Without a CUDA toolkit it defines nothing.
"""

load("@local_cuda//:defs.bzl", "CUDA_ENABLED")

# Machine code for A100 (works on 8.6 and 8.9 too), H100 and B200 (10.3 too). For other devices the
# driver compiles the PTX, which has the lowest architecture of CUDA 13. The kernels use no newer
# features, so all machine code is made from this PTX, which takes half the time.
_ARCHITECTURE = "compute_75"
_TARGETS = "-gencode=arch=compute_75,code=[compute_75,sm_80,sm_90,sm_100]"

# Drivers compile PTX up to their own version. This is the version of CUDA 12.4; ptxas fails if the
# code needs a newer one. The toolkit's newer compression modes would need newer drivers too.
_PTX_VERSION = "8.4"
_PTX_TARGETS = "-gencode=arch=compute_75,code=compute_75 --compress-mode=speed"

_ASSEMBLY = """    .section .note.GNU-stack, \\"\\", @progbits
    .section .rodata"""

_IMAGE = """    .balign 64
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
      symbol: the name of the first array; that of the second ends with _ptx.
      hdrs: headers of this project that src includes, directly or not.
      nvccopts: options of nvcc.
      **kwargs: of the cc_library.
    """
    if not CUDA_ENABLED:
        return
    nvcc = "$(execpath @local_cuda//:bin/nvcc) "
    tools = [
        "@local_cuda//:bin/nvcc",
        "@local_cuda//:nvcc_files",
    ]
    ptx = name + ".ptx"
    native.genrule(
        name = name + "_ptx",
        srcs = [src] + hdrs,
        outs = [ptx],
        cmd = nvcc + " ".join([
            "-std=c++20 --expt-relaxed-constexpr -I. -O3 -Werror=all-warnings",
        ] + nvccopts + [
            "-ptx -arch=%s $(execpath %s) -o $@.toolkit" % (_ARCHITECTURE, src),
            "&& sed 's/^\\.version .*/.version %s/' $@.toolkit > $@" % _PTX_VERSION,
        ]),
        message = "Compiling CUDA kernels",
        tools = tools,
        visibility = ["//visibility:private"],
    )
    images = {
        symbol: (name + ".fatbin", "--compress-mode=size " + _TARGETS),
        symbol + "_ptx": (name + "_ptx.fatbin", _PTX_TARGETS),
    }
    fatbins = [fatbin for fatbin, _ in images.values()]
    for fatbin, targets in images.values():
        native.genrule(
            name = fatbin.replace(".", "_"),
            srcs = [ptx],
            outs = [fatbin],
            cmd = nvcc + "%s -fatbin $(execpath %s) -o $@" % (targets, ptx),
            message = "Assembling CUDA kernels",
            tools = tools,
            visibility = ["//visibility:private"],
        )
    native.genrule(
        name = name + "_assembly",
        srcs = fatbins,
        outs = [name + ".s"],
        cmd = "echo \"" + "\n".join([_ASSEMBLY] + [
            _IMAGE.format(symbol = image, fatbin = fatbin)
            for image, (fatbin, _) in images.items()
        ]) + "\" > $@",
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name,
        srcs = [name + ".s"],
        # clang warns about options that an assembler does not use.
        copts = ["-Wno-unused-command-line-argument"],
        textual_hdrs = fatbins,
        **kwargs
    )
