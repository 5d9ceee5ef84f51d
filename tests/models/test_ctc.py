"""The loss against every path written down; PyTorch's own is what it is made of."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harken.models import ctc
from harken.models.ctc import CTC, ctc_loss, has_enough_frames
from small_ctc import collapse, every_text, lengths_present, padded_texts, random_logs, seeds

blanks = st.integers(0, 2)


def loss_of(logs: Tensor, lengths: list[int], texts: list[tuple[int, ...]], blank: int) -> Tensor:
    present = lengths_present(lengths, logs.shape[1])
    return ctc_loss(logs.clone(), present, *padded_texts(texts, blank), blank=blank)


@given(seeds, blanks, st.integers(1, 5), st.sampled_from([0.0, 1.0, 4.0]))
@settings(max_examples=25)
def test_equals_the_sum_over_all_paths(seed: int, blank: int, frames: int, strength: float) -> None:
    """Row by row and together, each with its own number of frames."""
    logs = random_logs(2, frames, 3, seed, strength)
    for row, length in ((0, frames), (1, frames - 1)):
        for text, said in every_text(logs[row, :length], blank).items():
            ours = loss_of(logs[row : row + 1], [length], [text], blank)
            assert ours.item() == pytest.approx(-said.log_probability, abs=1e-9)
    texts = [min(every_text(logs[row, : frames - row], blank)) for row in range(2)]
    alone = [loss_of(logs[row : row + 1], [frames - row], [texts[row]], blank) for row in range(2)]
    together = loss_of(logs, [frames, frames - 1], texts, blank)
    assert together.item() == pytest.approx(sum(loss.item() for loss in alone), abs=1e-9)


@pytest.mark.parametrize("blank", [0, 1, 2])
@pytest.mark.parametrize("frames", [0, 1, 2, 3, 4])
def test_what_fits_is_what_some_path_says(blank: int, frames: int) -> None:
    sayable = {collapse(path, blank) for path in itertools.product(range(3), repeat=frames)}
    tokens = [token for token in range(3) if token != blank]
    texts = [text for count in range(6) for text in itertools.product(tokens, repeat=count)]
    # Padding repeats a token, which must not count.
    present = lengths_present([frames] * len(texts), 5)
    rows = has_enough_frames(present, *padded_texts(texts, tokens[0]))
    assert rows.tolist() == [text in sayable for text in texts]


def test_rows_that_do_not_fit_are_left_out_and_seen() -> None:
    logs = random_logs(4, 5, 7, seed=3).requires_grad_()
    texts = [(1, 2), (1, 1, 1), (4, 4, 4, 4), ()]
    present = lengths_present([5, 5, 5, 2], 5)
    targets, written = padded_texts(texts, 1)
    assert has_enough_frames(present, targets, written).tolist() == [True, True, False, True]
    loss = ctc_loss(logs.clone(), present, targets, written, blank=0)
    others = [
        loss_of(logs[row : row + 1], [length], [texts[row]], 0)
        for row, length in ((0, 5), (1, 5), (3, 2))
    ]
    assert loss.item() == pytest.approx(sum(other.item() for other in others), abs=1e-12)
    (gradient,) = torch.autograd.grad(loss, logs)
    assert gradient.isfinite().all()
    assert gradient.flatten(1).any(dim=1).tolist() == [True, True, False, True]
    assert not gradient[3, 2:].any()


def test_nothing_fits_and_nothing_is_lost() -> None:
    logs = random_logs(2, 1, 3, seed=0).requires_grad_()
    loss = loss_of(logs, [1, 0], [(1, 2), (1,)], 0)
    (gradient,) = torch.autograd.grad(loss, logs)
    assert loss.item() == 0 and not gradient.any()


@given(seeds, st.sampled_from([(), (1,), (2, 1), (1, 1), (1, 2, 1)]))
@settings(max_examples=15)
def test_gradients_of_scores_are_those_of_all_paths(seed: int, text: tuple[int, ...]) -> None:
    scores = random_logs(1, 4, 3, seed).requires_grad_()
    (ours,) = torch.autograd.grad(loss_of(scores, [4], [text], 0), scores)
    logs = scores.log_softmax(dim=-1)
    paths = [path for path in itertools.product(range(3), repeat=4) if collapse(path, 0) == text]
    each = torch.stack([logs[0, range(4), path].sum() for path in paths])
    (slowly,) = torch.autograd.grad(-each.logsumexp(dim=0), scores)
    torch.testing.assert_close(ours, slowly, rtol=0, atol=1e-9)


@pytest.mark.parametrize("together", [1, 40, 1 << 22])
def test_gradients_are_those_of_pytorch_through_its_softmax(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows are taken at a time."""
    monkeypatch.setattr(ctc, "CTC_ELEMENTS", together)
    texts, lengths = [(1, 2), (3,), (), (1, 1, 2), (2, 1)], [7, 5, 2, 6, 2]
    scores = (3 * random_logs(5, 7, 4, seed=8)).requires_grad_()
    present, (targets, written) = lengths_present(lengths, 7), padded_texts(texts, 1)
    ours = 0.3 * ctc_loss(scores.clone(), present, targets, written, blank=0)
    theirs = 0.3 * torch.nn.functional.ctc_loss(
        scores.log_softmax(dim=-1).transpose(0, 1),
        targets[written],
        present.sum(dim=1),
        written.sum(dim=1),
        reduction="sum",
    )
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-12)
    gradients = [torch.autograd.grad(loss, scores)[0] for loss in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


def test_later_use_of_the_logits_is_rejected() -> None:
    inputs = random_logs(1, 5, 3, seed=0).requires_grad_()
    bent = inputs.tanh()  # which keeps what it wrote
    loss = ctc_loss(bent, lengths_present([5], 5), *padded_texts([(1, 2)], 1), blank=0)
    with pytest.raises(RuntimeError, match="inplace operation"):
        loss.backward()


def test_a_target_with_a_blank_in_it_is_refused() -> None:
    with pytest.raises(AssertionError, match="must not contain the blank"):
        loss_of(random_logs(1, 5, 3, seed=0), [5], [(1, 2)], 2)


def test_the_read_out_is_a_distribution_at_every_frame() -> None:
    model = CTC(13, 7, blank=3, seed=5)
    states = torch.randn(2, 5, 13)
    logs = model(states)
    assert logs.shape == (2, 5, 7) and model.blank == 3
    shares = (states @ model.ctc_head.weight.T + model.ctc_head.bias).softmax(dim=-1)
    torch.testing.assert_close(logs.exp(), shares)
    again, other = (CTC(13, 7, blank=3, seed=seed) for seed in (5, 6))
    assert torch.equal(again.ctc_head.weight, model.ctc_head.weight)
    assert not torch.equal(other.ctc_head.weight, model.ctc_head.weight)


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_log_probabilities_have_the_bits_they_need(dtype: torch.dtype, kept: torch.dtype) -> None:
    model = CTC(13, 7, blank=0, seed=5).to(dtype)
    logs = model(torch.randn(1, 2, 13, dtype=dtype))
    assert logs.dtype == kept
    assert logs.logsumexp(dim=-1).abs().max() < 1e-6
