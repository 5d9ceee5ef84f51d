"""Event files for TensorBoard, a folder per stage so that the steps of stages do not mix.

    STAGE/train   loss, lr, grad_norm and tokens_per_second of each step
    STAGE/dev     score of each evaluation

A resumed run repeats the steps after its last checkpoint. TensorBoard discards the earlier records
of these steps, because the new event file names the first of them (`purge_step`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from harken.errors import UserError
from harken.training.loop import EvaluationDone, Event, StepDone

Tracker = Literal["tensorboard"]


def require_trackers(trackers: Sequence[Tracker]) -> None:
    """Raise `UserError` if the package of a tracker is not installed."""
    if "tensorboard" in trackers and find_spec("tensorboard") is None:
        raise UserError(
            'training.track = ["tensorboard"] needs the package tensorboard',
            fix="install it with `pip install 'harken[tensorboard]'`, or set training.track = []",
        )


@contextmanager
def tensorboard_events(folder: Path) -> Iterator[Callable[[Event], None]]:
    """Yield a listener that writes training events into event files."""
    from torch.utils.tensorboard import SummaryWriter

    writers: dict[Path, SummaryWriter] = {}

    def write(path: Path, step: int, values: Mapping[str, float]) -> None:
        if path not in writers:
            writers[path] = stack.enter_context(SummaryWriter(path, purge_step=step))
        for name, value in values.items():
            writers[path].add_scalar(name, value, step)
        writers[path].flush()  # a resumed run does not repeat the steps before its checkpoint

    def listen(event: Event) -> None:
        if isinstance(event, StepDone):
            values = {
                "loss": event.loss,
                "lr": event.lr,
                "grad_norm": event.norm,
                "tokens_per_second": event.tokens / max(event.seconds, 1e-9),
            }
            write(folder / event.stage / "train", event.step, values)
        elif isinstance(event, EvaluationDone):
            write(folder / event.stage / "dev", event.step, {"score": event.value})

    with ExitStack() as stack:
        yield listen
