"""Defines a C++ library of Meshift; works in any workspace that builds it.

    load("//:meshift.bzl", "meshift_library")

    meshift_library(name = "mesh", srcs = ..., hdrs = ..., deps = ...)
"""

def meshift_library(copts = [], **kwargs):
    """A cc_library that sets C++20 itself, and is linked statically.

    A shared library would not find Abseil, which only binaries link.

    Args:
      copts: further options.
      **kwargs: those of cc_library.
    """
    native.cc_library(copts = ["-std=c++20"] + copts, linkstatic = True, **kwargs)
