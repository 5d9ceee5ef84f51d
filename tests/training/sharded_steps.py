"""Train a small encoder-decoder in float64 and write its weights; run by `test_sharding.py`.

[torchrun --nproc-per-node 2] sharded_steps.py PATH
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from harken.models.decoders import TransformerDecoderConfig
from harken.models.encoders import TransformerEncoderConfig
from harken.models.seq2seq import EncoderDecoder, EncoderDecoderConfig
from harken.training.average import EMAConfig, replaced_weights
from harken.training.checkpoint import Weights, model_state, write_weights
from harken.training.distributed import joined, world
from harken.training.gradients import clip_gradients, gradient_sum
from harken.training.optimizer import AdamWConfig, MuonConfig, SGDConfig
from harken.training.runtime import RuntimeConfig
from harken.training.sharding import build_sharded, gathered, is_sharded

VOCABULARY, MICRO_BATCHES, STEPS = 23, 4, 5
AVERAGE = EMAConfig()
CONFIG = EncoderDecoderConfig(
    encoder=TransformerEncoderConfig(layers=2, dropout=0.0),
    decoder=TransformerDecoderConfig(layers=2, width=20, dropout=0.0),
    dropout=0.0,
)


def build() -> EncoderDecoder:
    return CONFIG.build(VOCABULARY, seed=1).double()


def loss(model: EncoderDecoder, number: int) -> Tensor:
    torch.manual_seed(number)
    source, target = torch.randint(VOCABULARY, (2, 3, 7))
    logits = model(source, torch.ones_like(source, dtype=torch.bool), target)
    return logits.logsumexp(-1).sum() - logits.diagonal(dim1=1, dim2=2).sum()


def main() -> None:
    path = Path(sys.argv[1])
    for kind in (AdamWConfig(), MuonConfig(lr=0.02), SGDConfig(lr=0.05, momentum=0.9)):
        size, cpu = world().size, torch.device("cpu")
        model = build() if size == 1 else build_sharded(build, cpu)
        assert size == 1 or all(map(is_sharded, model.parameters()))
        gradients = gradient_sum(model, RuntimeConfig(reduction="sharded"), stages=1)
        optimizers, share = kind.build(model), MICRO_BATCHES // size
        kept: Sequence[Weights] = ()
        for step in range(STEPS):
            model.train()
            gradients.begin()
            for number in range(world().rank * share, (world().rank + 1) * share):
                loss(gradients.model, step * MICRO_BATCHES + number).backward()
                gradients.add()
            gradients.reduce(MICRO_BATCHES, gradients.has_gradient())
            clip_gradients(model, 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            kept = AVERAGE.after_step(kept, model_state(model), step + 1)
            model.eval()
            with gathered(model), torch.inference_mode():  # each rank calls parts of the model
                for _ in range(world().rank):
                    memory = torch.zeros(1, 2, dtype=torch.long)
                    model.init_state(memory, torch.ones_like(memory, dtype=torch.bool))
        write_weights(path.with_name(f"{path.name}-{kind.kind}"), model_state(model))
        with replaced_weights(model, kept, path):
            write_weights(path.with_name(f"{path.name}-{kind.kind}-ema"), model_state(model))


if __name__ == "__main__":
    with joined():
        main()
