"""The version of PyTorch that runs: major and minor number."""

from __future__ import annotations

import torch

TORCH_VERSION = tuple(
    int(number) for number in torch.__version__.split("+")[0].split(".")[:2] if number.isdigit()
)
