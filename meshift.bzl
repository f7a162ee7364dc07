"""A C++ library of Meshift, in whatever workspace it is built.

    load("//:meshift.bzl", "meshift_library")

    meshift_library(name = "mesh", srcs = ..., hdrs = ..., deps = ...)
"""

def meshift_library(copts = [], **kwargs):
    """A cc_library that says itself that it is C++20, and is linked into whatever uses it.

    A shared library of its own would not find Abseil, which only binaries are linked with.

    Args:
      copts: beside that.
      **kwargs: as of any cc_library.
    """
    native.cc_library(copts = ["-std=c++20"] + copts, linkstatic = True, **kwargs)
