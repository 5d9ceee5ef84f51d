"""Every body with either decoder: nothing leaks, padding is nothing, steps equal whole rows."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from harken.attention.multihead import MultiHeadConfig
from harken.attention.scores import TransformerXLConfig
from harken.decode.stepper import Seq2SeqStepper
from harken.layers.conformer import ConformerEncoderConfig
from harken.layers.convolution import ConvPyramidConfig, GatedConvolutionConfig
from harken.layers.recurrent import GRUConfig, LSTMConfig, TanhConfig
from harken.models.decoders import AttentionRNNDecoderConfig, TransformerDecoderConfig
from harken.models.encoders import EncoderConfig, TransformerEncoderConfig
from harken.models.seq2seq import DecoderConfig, EncoderDecoder, EncoderDecoderConfig
from small_layers import check_steps, randomized

VOCABULARY, WIDTH, START = 17, 12, 3
HEADS = MultiHeadConfig(heads=3)
RELATIVE = MultiHeadConfig(heads=3, score=TransformerXLConfig())
BODIES: dict[str, EncoderConfig] = {
    "transformer": TransformerEncoderConfig(layers=2, max_length=31, attention=HEADS),
    "conformer": ConformerEncoderConfig(
        layers=2, max_length=31, attention=RELATIVE, kernel=3, dropout=0.0
    ),
    "lstm both": LSTMConfig(direction="both"),
    "gru backward": GRUConfig(direction="backward", hidden=11),
    "tanh": TanhConfig(),
    "gated": GatedConvolutionConfig(layers=2),
    "stride2": ConvPyramidConfig(layers=2),
}
DECODERS: dict[str, DecoderConfig] = {
    "transformer": TransformerDecoderConfig(
        layers=2, width=WIDTH, max_length=29, attention=HEADS, dropout=0.0
    ),
    "rnn": AttentionRNNDecoderConfig(width=WIDTH, hidden=13),
    "lstm": AttentionRNNDecoderConfig(width=WIDTH, hidden=13, cell=LSTMConfig(layers=2)),
}
SOURCE = torch.tensor([[5, 6, 7, 8, 9], [4, 10, 11, 0, 0]])
PRESENT = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
TARGET = torch.tensor([[START, 5, 9, 12], [START, 14, 6, 8]])
pairs = pytest.mark.parametrize(
    ("body", "decoder"), [(body, decoder) for body in BODIES for decoder in DECODERS]
)


def built(body: str, decoder: str, **choices: object) -> EncoderDecoder:
    config = EncoderDecoderConfig(encoder=BODIES[body], decoder=DECODERS[decoder], dropout=0.0)
    torch.manual_seed(0)
    model = replace(config, **choices).build(VOCABULARY, seed=7)  # type: ignore[arg-type]
    return randomized(model, std=0.4)


@pairs
@torch.no_grad()
def test_steps_equal_whole_rows(body: str, decoder: str) -> None:
    model = built(body, decoder)
    check_steps(model, SOURCE, PRESENT, TARGET, model(SOURCE, PRESENT, TARGET))


@pairs
@torch.no_grad()
def test_padding_and_neighbors_change_nothing(body: str, decoder: str) -> None:
    model = built(body, decoder)
    together = model(SOURCE, PRESENT, TARGET)
    alone = model(SOURCE[1:, :3], PRESENT[1:, :3], TARGET[1:])
    assert_close(together[1:], alone, rtol=0, atol=1e-10)


@pairs
@torch.no_grad()
def test_target_is_causal_and_source_is_visible(body: str, decoder: str) -> None:
    model = built(body, decoder)
    states = model(SOURCE, PRESENT, TARGET)
    changed = TARGET.clone()
    changed[:, 2] = 1
    after = model(SOURCE, PRESENT, changed)
    assert torch.equal(states[:, :2], after[:, :2])
    assert (states[:, 2:] != after[:, 2:]).any(dim=-1).all()
    other = SOURCE.clone()
    other[:, 2] = 13
    assert (model(other, PRESENT, TARGET) != states).any(dim=-1).all()


@pairs
@torch.no_grad()
def test_selected_rows_continue(body: str, decoder: str) -> None:
    """Hypotheses that are moved, duplicated, or dropped with their prompt equal whole rows."""
    model = built(body, decoder)
    stepper = Seq2SeqStepper(model, START)

    def check(scores: Tensor, prompts: list[int], *texts: list[int]) -> None:
        rows = torch.tensor([[START, *text] for text in texts])
        expected = model(SOURCE[prompts], PRESENT[prompts], rows)[:, -1]
        assert_close(scores, expected, rtol=0, atol=1e-10)

    _, state = stepper.prefill(SOURCE, PRESENT)
    state = stepper.reorder(state, torch.tensor([0, 0, 1, 1]), beam=2, same_prompts=True)
    _, state = stepper.step(torch.tensor([5, 6, 7, 8]), state)
    state = stepper.reorder(state, torch.tensor([1, 1, 3, 2]), beam=2, same_prompts=True)
    scores, state = stepper.step(torch.tensor([9, 10, 9, 10]), state)
    check(scores, [0, 0, 1, 1], [6, 9], [6, 10], [8, 9], [7, 10])
    state = stepper.reorder(state, torch.tensor([3, 2, 3]), beam=3, same_prompts=False)
    scores, state = stepper.step(torch.tensor([5, 5, 6]), state)
    check(scores, [1, 1, 1], [7, 10, 5], [8, 9, 5], [7, 10, 6])
    state = stepper.reorder(state, torch.tensor([2, 0]), beam=1, same_prompts=False)
    scores, _ = stepper.step(torch.tensor([9, 9]), state)
    check(scores, [1, 1], [7, 10, 6, 9], [7, 10, 5, 9])


@torch.no_grad()
def test_rnn_decoder_starts_from_the_backward_state() -> None:
    """h[0] is the state of the right-to-left RNN at the source's first word."""
    model = built("lstm both", "rnn")
    table: Tensor = model.decoder.embedding(SOURCE)
    _, left = model.encoder.recurrent(table, PRESENT)
    state = model.init_state(SOURCE, PRESENT)
    backward = left.hidden[:, 1]
    assert_close(state.cell.hidden[:, 0], model.decoder.first(backward), rtol=0, atol=1e-12)


def test_embeddings_are_shared_or_separate() -> None:
    shared, apart = built("tanh", "rnn"), built("tanh", "rnn", share_embeddings=False)
    assert shared.embedding is None and apart.embedding is not None
    extra = VOCABULARY * WIDTH
    count = [
        sum(parameter.numel() for parameter in model.parameters()) for model in (shared, apart)
    ]
    assert count[1] - count[0] == extra


def test_seed_determines_the_weights() -> None:
    config = EncoderDecoderConfig(encoder=BODIES["transformer"], decoder=DECODERS["transformer"])
    first, same, other = (config.build(VOCABULARY, seed) for seed in (1, 1, 2))
    ours, theirs, others = (dict(model.state_dict()) for model in (first, same, other))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    name = "stack.blocks.0.attention.score.q_proj.weight"
    assert (ours[f"encoder.{name}"] != others[f"encoder.{name}"]).any()
    assert (ours[f"encoder.{name}"] != ours[f"decoder.{name}"]).any()


def test_incompatible_choices_are_rejected() -> None:
    with pytest.raises(ValueError, match="does not divide"):
        EncoderDecoderConfig(
            encoder=TransformerEncoderConfig(attention=MultiHeadConfig(heads=5)),
            decoder=DECODERS["rnn"],
        )
    with pytest.raises(ValueError, match="expected false in an encoder"):
        EncoderDecoderConfig(encoder=GatedConvolutionConfig(causal=True))
