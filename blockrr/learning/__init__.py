"""Data, label-free features and learners; old names of what moved still work, and say where it is."""

import sys
import types

from blockrr.privacy.checks import moved

denoise = types.ModuleType("blockrr.learning.denoise", "The old name of `noise_aware` and `likelihood`.")
denoise.__getattr__ = moved(
    denoise.__name__,
    {
        "forward": "blockrr.learning.noise_aware:fit_forward",
        "label_likelihood": "blockrr.learning.likelihood:label_likelihood",
    },
)
sys.modules[denoise.__name__] = denoise
