"""Data, label-free features and learners; old names of what moved still work, and say where it is."""

import sys
import types
from importlib import import_module

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

_LEARNERS = {
    "ForwardLoss": "torch_losses",
    "LabelDPClassifier": "table_classifier",
    "NoiseAwareClassifier": "any_model",
    "NoiseAwareRegressor": "any_regressor",
    "ReleasedLabels": "torch_losses",
}
__all__ = list(_LEARNERS)


def __getattr__(name: str):
    "Import a learner when it is first asked for: those for tables need no torch."
    if name not in _LEARNERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LEARNERS[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LEARNERS})
