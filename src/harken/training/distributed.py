"""Communication between the processes that `torchrun` started.

Every rank runs the same program. `joined` connects the ranks; without torchrun there is one process
and the functions below do not communicate. Rank 0 alone writes files and prints. A function that
communicates must be called by all ranks, except inside `alone`, where a process acts as if it were
the only one.
"""

import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from importlib import import_module
from itertools import zip_longest
from typing import NamedTuple, NoReturn, TypeVar, cast

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed import DistNetworkError

from harken.errors import Failure, HarkenError, UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

PR_SET_PDEATHSIG = 1  # of prctl(2)
POLL_SECONDS = 0.02
JOIN_SECONDS = 300


class World(NamedTuple):
    """The index of this process and the number of processes."""

    rank: int
    size: int

    @property
    def is_main(self) -> bool:
        return self.rank == 0


SINGLE = World(0, 1)
_world: ContextVar[World] = ContextVar("world", default=SINGLE)
# The error that `raise_on_all` raised on every rank.
_agreed: ContextVar[Exception | None] = ContextVar("agreed", default=None)


def world() -> World:
    """Return rank and number of the processes that take part in the current computation."""
    return _world.get()


@contextmanager
def alone() -> Iterator[None]:
    """Compute without the other ranks inside this block."""
    token = _world.set(SINGLE)
    try:
        yield
    finally:
        _world.reset(token)


@contextmanager
def joined() -> Iterator[World]:
    """Connect the processes that torchrun started, described by its environment variables."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield SINGLE
        return
    rank = int(os.environ["RANK"])
    _end_with_agent()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # Import this module, which optimizers use, before the process group exists. Otherwise its
    # default arguments hold the group, whose threads may abort the process at exit.
    import_module("torch.distributed.nn.functional")
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=_fresh_store(rank, size), rank=rank, world_size=size)
    token = _world.set(World(rank, size))
    try:
        set_threads(0)
        yield world()
    except Exception as error:
        if error is _agreed.get():
            # torchrun stops all processes as soon as one has ended. Let each end by itself, so that
            # rank 0 reports the error and all have its exit code.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise
    finally:
        _world.reset(token)
        dist.destroy_process_group()


def is_elastic() -> bool:
    """Return whether torchrun restarts failed processes, which must then resume their run."""
    return int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0


def set_threads(threads: int) -> None:
    """Set the CPU threads of every rank to rank 0's number.

    With 0, a single process keeps PyTorch's default, and several processes on one machine share its
    cores equally.
    """
    if threads == 0 and world().size > 1:
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        threads = max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    if chosen := gather(threads)[0]:
        torch.set_num_threads(chosen)


def _end_with_agent() -> None:
    """Request SIGTERM if the parent, torchrun's agent, dies.

    Otherwise this process would continue to hold the lock of the run folder.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))


def _connect_store(rank: int, size: int) -> Store:
    """Connect to the store of torchrun, or without torchrun to that of rank 0."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    is_host = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        return TCPStore(
            address,
            port,
            size,
            is_host,
            timeout=timedelta(seconds=JOIN_SECONDS),
            wait_for_workers=False,
        )
    except DistNetworkError as error:
        reason = str(error).splitlines()[0][:200]
        if is_host:
            message = f"{address}:{port}: rank 0 cannot listen on this port ({reason})"
            raise UserError(message, fix="set MASTER_PORT to a free port") from error
        message = f"{address}:{port}: rank {rank} cannot connect ({reason})"
        fix = "check that rank 0 runs and that this machine reaches the address"
        raise Failure(message, fix=fix) from error


def _fresh_store(rank: int, size: int) -> Store:
    """Return a store without entries of earlier processes.

    After a restart, torchrun's store still has the addresses of dead processes, so rank 0 draws a
    new prefix. Every other rank draws a random name, writes it to `request/RANK`, and reads the
    prefix from `answer/NAME`. An old request may be answered too, but an old answer is never read,
    because the name is new. When all ranks have written `joined/PREFIX/RANK`, rank 0 continues.
    """
    store = _connect_store(rank, size)
    random_name, deadline = uuid.uuid4().hex, time.monotonic() + JOIN_SECONDS

    def wait() -> None:
        if time.monotonic() > deadline:
            message = f"rank {rank}: the {size} processes did not connect in {JOIN_SECONDS} s"
            raise Failure(message, fix="check that all nodes run and reach the rendezvous address")
        time.sleep(POLL_SECONDS)

    if rank == 0:
        prefix = random_name
        while not all(store.check([f"joined/{prefix}/{other}"]) for other in range(1, size)):
            for request in (f"request/{other}" for other in range(1, size)):
                if store.check([request]):
                    store.set(f"answer/{store.get(request).decode()}", prefix)
            wait()
        return PrefixStore(prefix, store)
    store.set(f"request/{rank}", random_name)
    while not store.check([f"answer/{random_name}"]):
        wait()
    prefix = store.get(f"answer/{random_name}").decode()
    store.set(f"joined/{prefix}/{rank}", "")
    return PrefixStore(prefix, store)


def gather(value: Item) -> list[Item]:
    """Return the values of all ranks."""
    if world().size == 1:
        return [value]
    values: list[Item] = [value] * world().size
    with connection_errors():
        dist.all_gather_object(values, value)
    return values


def agree(action: Callable[[], Result]) -> Result:
    """Call a function on every rank; return its result.

    If it raises `HarkenError` or `OSError` on any rank, raise the error of the lowest such rank on
    all ranks.
    """
    error: HarkenError | OSError | None = None
    try:
        result = action()
    except (HarkenError, OSError) as raised:
        if world().size == 1:
            raise
        error = raised
    if world().size == 1:
        return result
    errors = gather(error)
    failed = [rank for rank, rank_error in enumerate(errors) if rank_error is not None]
    if failed:
        first = errors[failed[0]]
        assert first is not None
        if isinstance(first, HarkenError) and failed[0] > 0:  # rank 0 reports it
            first = type(first)(f"rank {failed[0]}: {first.message}", fix=first.fix)
        raise_on_all(first)
    return result


def raise_on_all(error: Exception) -> NoReturn:
    """Raise an error that every rank raises; only rank 0 reports it."""
    _agreed.set(error)
    raise error


def is_reported_by_main(error: Exception) -> bool:
    """Return whether `raise_on_all` raised this error and this is not rank 0."""
    return error is _agreed.get() and os.environ.get("RANK", "0") != "0"


def on_main(action: Callable[[], Result]) -> Result:
    """Call a function on rank 0 and return its result on all ranks, or raise its error."""
    result = agree(lambda: action() if world().is_main else None)
    return cast(Result, gather(result)[0])


def main_first(action: Callable[[], Result]) -> Result:
    """Call a function on rank 0, then on the others, which find the files that rank 0 wrote."""
    on_rank_0 = agree(lambda: action() if world().is_main else None)
    return cast(Result, agree(lambda: on_rank_0 if world().is_main else action()))


def require_equal(values: Mapping[str, str], fix: str) -> None:
    """Raise `UserError` on all ranks if a named value differs from rank 0's."""
    main, *others = gather(values)
    for rank, other in enumerate(others, 1):
        for name, value in main.items():
            for line, other_line in zip_longest(value.splitlines(), other[name].splitlines()):
                if line != other_line:
                    shown = f"rank 0 has {line!r}, rank {rank} has {other_line!r}"
                    message = f"{name} differs between the processes ({shown})"
                    raise_on_all(UserError(message, fix=fix))


def map_batches(function: Callable[[Item], Result], batches: Iterable[Item]) -> Iterator[Result]:
    """Apply a function to batches, each on one rank; yield all results in order on every rank."""
    rank, size = world()
    if size == 1:
        yield from map(function, batches)
        return

    def own_results() -> list[Result]:
        with alone():
            return [function(batch) for index, batch in enumerate(batches) if index % size == rank]

    shares = gather(agree(own_results))
    for index in range(sum(map(len, shares))):
        yield shares[index % size][index // size]


def sum_counts(count: int) -> int:
    """Return the sum over all ranks."""
    if world().size == 1:
        return count
    total = torch.tensor(count)
    with connection_errors():
        dist.all_reduce(total)
    return int(total)


def gather_rows(row: Float[Tensor, "N"]) -> Float[Tensor, "ranks N"]:
    """Return the rows of all ranks; they have the same length."""
    if world().size == 1:
        return row[None]
    rows = row.new_empty(world().size, len(row))
    with connection_errors():
        dist.all_gather(list(rows), row)
    return rows


def sum_tree(rows: Float[Tensor, "ranks N"]) -> Float[Tensor, "N"]:
    """Sum rows as ((0 + 1) + (2 + 3)) + …; their number is a power of two."""
    while len(rows) > 1:
        rows = rows[0::2] + rows[1::2]
    return rows[0]


def all_reduce_exact(tensors: Sequence[Tensor]) -> None:
    """Replace tensors by their sums over ranks in the order of `sum_tree`.

    Each rank sums one part of all tensors (all-to-all) and sends it to the others (all-gather).
    This moves as many bytes as a ring all-reduce, whose order of additions depends on the world
    size.
    """
    size = world().size
    if size == 1 or not tensors:
        return
    lengths = [tensor.numel() for tensor in tensors]
    padding = tensors[0].new_zeros(-sum(lengths) % size)
    flat = torch.cat([*(tensor.flatten() for tensor in tensors), padding])
    rows = torch.empty_like(flat)
    with connection_errors():
        dist.all_to_all_single(rows, flat)
        dist.all_gather(list(flat.view(size, -1)), sum_tree(rows.view(size, -1)))
    for tensor, total in zip(tensors, torch.split(flat, [*lengths, len(padding)]), strict=False):
        tensor.copy_(total.view_as(tensor))


@contextmanager
def connection_errors() -> Iterator[None]:
    """Turn a lost connection, which PyTorch reports as RuntimeError, into a `Failure`."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0][:200]
        raise Failure(
            f"rank {world().rank}: the connection to another process was lost ({reason})",
            fix="read the messages of the other ranks, then resume the run",
        ) from error
