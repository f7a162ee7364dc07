"""Options for what a search goes through again and again, which nothing from outside comes near."""

# The toolchain's flags keep a frame pointer and guard stacks; short loops over samples are worth
# unrolling. Sanitizer and debug builds leave it at that.
INNER_LOOPS = select({
    "//planner/graph:opt": [
        "-O3",
        "-fomit-frame-pointer",
        "-fno-stack-protector",
    ],
    "//conditions:default": [],
})
