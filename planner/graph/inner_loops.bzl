"""Compiler options for the planner's inner loops, which read no untrusted input."""

# In optimized builds: short loops are unrolled, without the frame pointers and stack protectors that
# the toolchain adds. Other builds (debug, sanitizers) keep the default options.
INNER_LOOPS = select({
    "//planner/graph:opt": [
        "-O3",
        "-fomit-frame-pointer",
        "-fno-stack-protector",
    ],
    "//conditions:default": [],
})
