"""Data, label-free features and learners; old names of what moved still work, and say where it is."""
import importlib
import sys
import types
import warnings


def moved_names(old: str, names: dict):
    """Make a module's `__getattr__` that finds moved names and warns.

    Parameters
    ----------
    old : str
        The module that had them.
    names : dict
        Old name -> (module within `blockrr.learning`, new name).
    """
    def find(name: str):
        if name not in names: raise AttributeError(f"module {old!r} has no attribute {name!r}")
        module, new = names[name]
        warnings.warn(f"{old}.{name} is now blockrr.learning.{module}.{new}", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(f"blockrr.learning.{module}"), new)
    return find


denoise = types.ModuleType("blockrr.learning.denoise", "The old name of `noise_aware` and `likelihood`.")
denoise.__getattr__ = moved_names(denoise.__name__, {
    "forward": ("noise_aware", "fit_forward"),
    "label_likelihood": ("likelihood", "label_likelihood"),
})
sys.modules[denoise.__name__] = denoise
