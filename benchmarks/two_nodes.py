"""Train on two nodes, which are network namespaces of this machine, and measure the traffic.

    python benchmarks/two_nodes.py

Needs Linux, root and iproute2; otherwise it prints why it was skipped. Two torchrun agents with one
worker each train a small GPT: once over a veth pair, and once over two TUN devices, between which a
thread of this script relays packets with a delay of 20 ms and a loss of 1 % in each direction. Both
must have the weights, metrics and losses of one process, bit for bit.

The bytes that a node sends per step are the difference between a run of 10 and a run of 5 steps,
from the counters of the devices, including headers, acknowledgments and retransmissions. They
are compared with 2 (N - 1) / N times the bytes of the gradients, for N = 2 ranks. The exit code is
0 if the weights are equal, and the ratio is at most 1.1 on the network without loss.
"""

import argparse
import fcntl
import json
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from distributed import (
    TORCHRUN,
    digest,
    launch,
    micro_batches,
    start,
    train,
    train_arguments,
    write_small_recipes,
)

NODES = {"harken-a": "10.77.0.1", "harken-b": "10.77.0.2"}
DEVICE, PORT = "node0", 29555
NETWORKS = ("plain", "lossy")
DELAY, LOSS = 0.02, 0.01  # of the lossy network: seconds, and share of packets
STEPS = (5, 10)
SIZES = ("model.layers=2", "model.width=128", "training.evaluate_every=0")
MAX_RATIO = 1.1
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000  # of linux/if_tun.h
TIMEOUT = 300.0  # seconds; a longer run counts as hanging


def missing() -> str:
    """Return why this machine cannot run the benchmark; empty if it can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces need Linux"
    if shutil.which("ip") is None:
        return "ip not found; install iproute2"
    if not Path("/dev/net/tun").exists():
        return "/dev/net/tun not found"
    return "network namespaces need root" if os.geteuid() else ""


@contextmanager
def two_nodes(network: str) -> Iterator[None]:
    """Connect two network namespaces by a veth pair, or by a relay that loses packets."""

    def run(*words: str) -> None:
        subprocess.run(words, check=True)

    with ExitStack() as stack:
        for node in NODES:
            run("ip", "netns", "add", node)
            stack.callback(run, "ip", "netns", "del", node)
        first, second = NODES
        if network == "plain":
            peer = ("peer", "name", DEVICE, "netns", second)
            run("ip", "link", "add", DEVICE, "netns", first, "type", "veth", *peer)
        else:
            files = []
            for number, node in enumerate(NODES):
                files.append(stack.enter_context(open_tun(f"harken{number}")))
                run("ip", "link", "set", f"harken{number}", "netns", node, "name", DEVICE)
            stack.enter_context(relay(*files))
        for node, address in NODES.items():
            run("ip", "-n", node, "addr", "add", f"{address}/24", "dev", DEVICE)
            run("ip", "-n", node, "link", "set", DEVICE, "up")
            run("ip", "-n", node, "link", "set", "lo", "up")
        yield


@contextmanager
def open_tun(name: str) -> Iterator[int]:
    """Create a TUN device and yield its file, from which packets are read and written."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
        yield file
    finally:
        os.close(file)


@contextmanager
def relay(*files: int) -> Iterator[None]:
    """Pass packets between two devices in a thread, late, and without some of them."""
    stopped, rng = threading.Event(), random.Random(0)
    waiting: deque[tuple[float, int, bytes]] = deque()  # when to write a packet to which file

    def run() -> None:
        while not stopped.is_set():
            pause = waiting[0][0] - time.monotonic() if waiting else 0.1
            for file in select.select(files, [], [], max(0.0, min(pause, 0.1)))[0]:
                packet = os.read(file, 65536)
                other = files[1] if file == files[0] else files[0]
                if rng.random() >= LOSS:
                    waiting.append((time.monotonic() + DELAY, other, packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, file, packet = waiting.popleft()
                with suppress(OSError):  # the device is not up yet
                    os.write(file, packet)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def sent_bytes(node: str) -> int:
    """Return the bytes that a node has sent."""
    command = ["ip", "-n", node, "-s", "-j", "link", "show", DEVICE]
    shown = subprocess.run(command, check=True, capture_output=True).stdout
    return int(json.loads(shown)[0]["stats64"]["tx"]["bytes"])


def train_on_nodes(arguments: list[str], output: Path) -> list[int | None]:
    """Start an agent on each node and return their exit codes; None for one that hangs."""
    address, *_ = NODES.values()
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{address}:{PORT}"]
    agents = []
    for node, own_address in NODES.items():
        torchrun = [*TORCHRUN, "--nnodes", "2", "--nproc-per-node", "1", *rendezvous]
        # torchrun compares the endpoint with the host name, which both namespaces share.
        torchrun += ["--rdzv-conf", f"is_host={own_address == address}"]
        command = [*torchrun, "--local-addr", own_address, "-m", "--", "harken", *arguments]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": DEVICE}
        with output.with_name(f"{output.name}-{node}.txt").open("ab") as file:
            agents.append(start(["ip", "netns", "exec", node, *command], file, env=environment))
    deadline = time.monotonic() + TIMEOUT
    codes: list[int | None] = []
    for process in agents:
        try:
            codes.append(process.wait(max(0.0, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            codes.append(None)
    return codes


def gradient_bytes(run: Path) -> int:
    """Return the size of the gradients of a run's model."""
    import harken

    parameters = harken.load(run).model.parameters()
    return sum(parameter.numel() * parameter.element_size() for parameter in parameters)


def compare(folder: Path, networks: Sequence[str]) -> bool:
    """Print equality and bytes for each network, and return whether they are as expected."""
    write_small_recipes(folder, ["lm"])

    def arguments(run: str, steps: int) -> list[str]:
        sets = (*micro_batches("lm", 2), *SIZES, f"training.steps={steps}")
        return train_arguments(folder / "lm.toml", folder / run, sets)

    for steps in STEPS:
        train(launch(1, arguments(f"one-{steps}", steps)), folder / "one.txt")
    expected = {steps: digest(folder / f"one-{steps}") for steps in STEPS}
    assert all(expected.values()), (folder / "one.txt").read_text()
    ranks = len(NODES)
    predicted = 2 * (ranks - 1) / ranks * gradient_bytes(folder / f"one-{STEPS[0]}")
    result: dict[str, dict[str, object]] = {}
    ok = True
    for number, title in enumerate(networks):
        sent: dict[str, list[int]] = {node: [] for node in NODES}
        equal = True
        with two_nodes(title):
            for steps in STEPS:
                run = f"nodes-{number}-{steps}"
                before = {node: sent_bytes(node) for node in NODES}
                codes = train_on_nodes(arguments(run, steps), folder / run)
                for node in NODES:
                    sent[node].append(sent_bytes(node) - before[node])
                is_equal = codes == [0, 0] and digest(folder / run) == expected[steps]
                if not is_equal:
                    outputs = [path.read_text() for path in folder.glob(f"{run}-*.txt")]
                    print(title, codes, *outputs, sep="\n", file=sys.stderr)
                equal = equal and is_equal
        interval = STEPS[1] - STEPS[0]
        per_step = [round((later - first) / interval) for first, later in sent.values()]
        ratio = round(max(per_step) / predicted, 3)
        result[title] = {
            "equal": equal,
            "bytes sent per step and node": per_step,
            "predicted": round(predicted),
            "ratio": ratio,
        }
        print(title, result[title], file=sys.stderr, flush=True)
        ok = ok and equal and (title == "lossy" or ratio <= MAX_RATIO)
    print(json.dumps(result))
    return ok


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", nargs="*", choices=NETWORKS, default=NETWORKS)
    options = parser.parse_args()
    if reason := missing():
        print(json.dumps({"skipped": reason}))
        return 0
    with tempfile.TemporaryDirectory() as name:
        return 0 if compare(Path(name), options.network) else 1


if __name__ == "__main__":
    sys.exit(main())
