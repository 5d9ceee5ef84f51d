"""DistributedDataParallel gives the loss and the gradients of the model that it wraps."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path

import pytest
import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from harken.recipe import TASKS, load_recipe, task_of
from harken.run_folder import RECIPE
from harken.training.loop import Stage

CPU = torch.device("cpu")
DECODERS = {
    kind: f"model.decoder={{kind='{kind}',width=16,max_length=64}}"
    for kind in ("rnn", "transformer")
}
CASES = [
    *((task, ()) for task in TASKS),
    ("tag", ("training.vectors.steps=1", "training.vectors.batch_tokens=64")),
    ("fill", ("model={kind='masked',width=16}",)),
    ("lm", ("model={kind='rnn',width=16}",)),
    ("lm", ("model={kind='cnn',width=16}",)),
    ("translate", (DECODERS["rnn"],)),
    ("transcribe", (DECODERS["rnn"],)),
    ("transcribe", (DECODERS["transformer"], "model.ctc=false")),
    ("caption", (DECODERS["transformer"],)),
]


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    """A group of this process alone."""
    store = f"file://{tmp_path / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def two_batches(
    model: nn.Module, stage: Stage[nn.Module]
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Losses and summed gradients of the first two training batches."""
    torch.manual_seed(5)  # dropout
    losses = []
    for step in range(2):
        for part in stage.batch(step):
            losses.append(part.loss(model, CPU))
            losses[-1].backward()
    return losses, [parameter.grad for parameter in model.parameters()]


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize(("name", "sets"), CASES, ids=[" ".join((n, *s)) for n, s in CASES])
def test_every_stage_trains_wrapped(
    name: str, sets: tuple[str, ...], untrained_run: Callable[[str], Path], tmp_path: Path
) -> None:
    recipe = load_recipe(untrained_run(name) / RECIPE, sets)
    task = task_of(recipe)
    splits = task.read_splits(recipe)
    vocabulary = task.fit(recipe, splits["train"])
    stages = task.stages(recipe, splits, vocabulary, tmp_path / "tokens")
    assert len(stages) == (2 if name == "answer" or "vectors" in str(sets) else 1)
    for stage in stages:
        model = task.build(recipe, vocabulary.sizes).train()
        copy = deepcopy(model)
        losses, gradients = two_batches(model, stage)
        unused = any(gradient is None for gradient in gradients)
        assert not unused or model.neighbors is not None  # CBOW and the tags share the words alone
        wrapped = DistributedDataParallel(copy, find_unused_parameters=unused)
        wrapped_losses, wrapped_gradients = two_batches(wrapped, stage)
        assert all(map(torch.equal, losses, wrapped_losses))
        for gradient, other in zip(gradients, wrapped_gradients, strict=True):
            assert other is None if gradient is None else torch.equal(gradient, other)
