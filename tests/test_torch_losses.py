"""ForwardLoss against NumPy and finite differences, sets and gaps; ReleasedLabels holds labels and never draws."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import blockrr as br  # noqa: E402
from blockrr.learning.torch_losses import ForwardLoss, ReleasedLabels  # noqa: E402

MECHANISM = br.rr(4, 1.0)


@pytest.fixture
def logits():
    return torch.randn(8, 4, dtype=torch.float32, generator=torch.Generator().manual_seed(1)).requires_grad_()


def test_against_numpy_and_reductions(logits):
    released = torch.tensor([0, 1, 2, 3, 0, -1, 1, -1])
    p = torch.softmax(logits, 1).detach().numpy().astype(float)
    rows = released.numpy() >= 0
    by_hand = -np.log((p @ MECHANISM.transition)[rows, released.numpy()[rows]])
    each = ForwardLoss(MECHANISM, reduction="none")(logits, released).detach().numpy()
    np.testing.assert_allclose(each[rows], by_hand, rtol=1e-5)
    assert (each[~rows] == 0).all()
    np.testing.assert_allclose(float(ForwardLoss(MECHANISM)(logits, released)), by_hand.mean(), rtol=1e-5)
    np.testing.assert_allclose(
        float(ForwardLoss(MECHANISM, reduction="sum")(logits, released)), by_hand.sum(), rtol=1e-5
    )


def test_gradient_is_p_minus_the_posterior(logits):
    released = torch.tensor([0, 1, 2, 3, 0, 2, 1, 3])
    [gradient] = torch.autograd.grad(ForwardLoss(MECHANISM, reduction="sum")(logits, released), logits)
    p = torch.softmax(logits, 1).detach().numpy()
    q = p * MECHANISM.transition.T[released.numpy()]
    np.testing.assert_allclose(gradient.numpy(), p - q / q.sum(1, keepdims=True), atol=1e-5)


def test_sets(logits):
    mechanism = br.subset_response(4, 1.0, size=2)
    released = mechanism.privatize(np.arange(4).repeat(2), seed=1)
    L = torch.from_numpy(mechanism.likelihood(released)).float()
    p = torch.softmax(logits, 1).detach().numpy()
    by_hand = -np.log((p * mechanism.likelihood(released)).sum(1)).mean()
    np.testing.assert_allclose(float(ForwardLoss()(logits, L)), by_hand, rtol=1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 40.0, np.inf])
def test_extreme_logits_stay_finite(epsilon):
    logits = torch.tensor([[300.0, -300, 0, 0]] * 2, requires_grad=True)
    loss = ForwardLoss(br.rr(4, epsilon))(logits, torch.tensor([1, 0]))
    [gradient] = torch.autograd.grad(loss, logits)
    assert torch.isfinite(loss) and torch.isfinite(gradient).all()


def test_no_row_with_a_label(logits):
    loss = ForwardLoss(MECHANISM)(logits, torch.full((8,), -1))
    loss.backward()
    assert float(loss) == 0 and (logits.grad == 0).all()


def test_every_epoch_sees_the_same(logits):
    truth = np.arange(100) % 4
    data = torch.utils.data.TensorDataset(torch.arange(100.0), torch.from_numpy(truth))
    out = br.release(truth, 1.0, 4, method="rr", seed=1)
    rows = ReleasedLabels(data, out)
    epochs = [torch.stack([y for _, y in torch.utils.data.DataLoader(rows, batch_size=None)]) for _ in range(2)]
    assert torch.equal(*epochs) and len(rows[0]) == 2
    np.testing.assert_allclose(epochs[0].numpy(), out.likelihood, rtol=1e-6)


def test_gaps_are_left_out_or_kept():
    released = [0, -1, 3, -1]
    assert [float(x) for x, _ in (lambda d: [d[i] for i in range(len(d))])(ReleasedLabels(torch.arange(4.0), released,
            MECHANISM))] == [0, 2]  # fmt: skip
    assert len(ReleasedLabels(torch.arange(4.0), released, MECHANISM, every=True)) == 4


def test_bad_input(logits):
    with pytest.raises(TypeError, match="true labels are not taken here"):
        ReleasedLabels(torch.arange(4.0), [0, 1, 2, 3])
    with pytest.raises(ValueError, match="data: needs 3 items"):
        ReleasedLabels(torch.arange(4.0), [0, 1, 2], MECHANISM)
    with pytest.raises(ValueError, match="logits: needs shape"):
        ForwardLoss(br.rr(3, 1.0))(logits, torch.zeros(8, dtype=torch.long))
    with pytest.raises(ValueError, match="reduction: needs"):
        ForwardLoss(MECHANISM, reduction="max")
