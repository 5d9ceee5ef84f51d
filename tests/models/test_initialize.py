import math

import pytest
import torch

from harken.attention.multihead import MultiHeadConfig
from harken.attention.scores import INITIAL_STD
from harken.models.gpt import GPT, GPTConfig
from small_models import SCORES, VOCABULARY, small_config


@pytest.mark.parametrize("score", SCORES)
def test_a_seed_gives_the_same_weights_whatever_was_drawn_before(score: str) -> None:
    def weights(seed: int, drawn_before: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(drawn_before)
        return small_config(score).build(VOCABULARY, seed).state_dict()

    first, same, other = weights(3, 1), weights(3, 2), weights(4, 1)
    assert all(torch.equal(first[name], same[name]) for name in first)
    drawn = {name for name in first if first[name].std() > 0}
    assert {name for name in first if not torch.equal(first[name], other[name])} == drawn
    fixed = {name for name in first if name not in drawn}
    assert all("norm" in name or name.endswith(("bias", "offset", "offsets")) for name in fixed)


def wide(score: str, layers: int) -> GPT:
    attention = MultiHeadConfig(heads=4, score=SCORES[score])
    config = GPTConfig(
        layers=layers, width=64, max_length=64, attention=attention, tie_embeddings=False
    )
    return config.build(101, seed=0)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("layers", [1, 3])
def test_residual_projections_are_scaled_by_depth(score: str, layers: int) -> None:
    for name, parameter in wide(score, layers).named_parameters():
        numbers = parameter.detach()
        if "norm" in name:
            expected = 1.0 if name.endswith("weight") else 0.0
            assert (numbers == expected).all()
        elif name.endswith(("bias", "offset", "offsets")):
            assert not numbers.any()
        else:
            adds = name.endswith(("out_proj.weight", "down_proj.weight"))
            spread = INITIAL_STD / math.sqrt(2 * layers) if adds else INITIAL_STD
            if name.endswith("score.direction"):
                assert numbers.std().item() == pytest.approx(16**-0.5, rel=0.3)  # of 64 numbers
                continue
            if name.endswith("score.weight"):  # merged: like the product that it stands for
                spread = INITIAL_STD**2 * 64  # its scale is 1 / 64
            assert numbers.std().item() == pytest.approx(spread, rel=0.1), name
            assert abs(numbers.mean().item()) < spread / 10
