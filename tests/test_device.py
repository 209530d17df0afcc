"""What is asked of a machine: which device, in which arithmetic, and what to do where something is missing."""

import pytest
import torch

from blockrr.learning import device as D


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("BLOCKRR_DEVICE", raising=False)


def test_a_missing_gpu_is_refused_with_advice(no_gpu):
    for ask in (
        lambda: D.torch_device("cuda"),
        lambda: D.Execution("cuda:1"),
        lambda: D.execution("cuda"),
    ):
        with pytest.raises(RuntimeError, match="there is no CUDA device .* choose the device cpu"):
            ask()


def test_without_a_gpu_the_processor_is_taken(no_gpu):
    assert D.torch_device().type == "cpu" and D.torch_device(torch.device("cpu")).type == "cpu"
    how = D.execution()
    assert (how.device, how.precision, how.compile, how.cuda) == (
        "cpu",
        "float32",
        "off",
        False,
    )


def test_the_environment_chooses(no_gpu, monkeypatch):
    monkeypatch.setenv("BLOCKRR_DEVICE", "cuda")
    with pytest.raises(RuntimeError, match="no CUDA device"):
        D.execution()
    assert D.execution("cpu", precision="bfloat16").precision == "bfloat16"


@pytest.mark.parametrize(
    "field, bad",
    [("eval_batch", 0), ("eval_batch", True), ("eval_batch", 2.0), ("compile", "yes")],
)
def test_bad_fields(field, bad):
    with pytest.raises(ValueError, match=f"^{field}: needs"):
        D.Execution(**{field: bad})


@pytest.mark.parametrize("bad", ["tpu0", "mps", "gpu", ""])
def test_bad_devices(bad):
    with pytest.raises(ValueError, match="^device: needs cpu, cuda or cuda:N"):
        D.Execution(bad)


def test_settings_are_put_back_after_an_error():
    before = torch.backends.cudnn.benchmark
    with pytest.raises(KeyError), D.tuned(True):
        assert torch.backends.cudnn.benchmark
        raise KeyError
    assert torch.backends.cudnn.benchmark == before


def test_only_a_lack_of_memory_becomes_advice():
    for error in (torch.OutOfMemoryError("CUDA"), MemoryError("host")):
        with (
            pytest.raises(RuntimeError, match=r"^do less \((CUDA|host)\)$"),
            D.memory_advice("do less"),
        ):
            raise error
    with pytest.raises(KeyError), D.memory_advice("do less"):
        raise KeyError
