"""Compare the predicted with the measured bytes that processes send in a training step.

    python benchmarks/scaling.py [--reductions exact fast] [--processes 2]

The benchmark trains a small language model under torchrun, with a small and with a large number of
steps, and reads the bytes of the loopback interface (/proc/net/dev, Linux) before and after each
run. The difference between the two runs, divided by the number of further steps and of processes,
is compared with the prediction of `harken cost --processes`. The last line on standard output is a
JSON object with both figures in bytes and their ratio predicted / measured, by reduction.

All programs on the machine share the loopback interface. If others use it, give the benchmark one
of its own: `unshare --net sh -c 'ip link set lo up; python benchmarks/scaling.py'`, as root.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from safetensors import safe_open

STEPS = (4, 24)
HARKEN = [sys.executable, "-m", "harken"]
RECIPE = """task = "lm"
[data]
train = "sentences/text.txt"
[model]
layers = 2
width = 256
max_length = 32
[training]
batch_tokens = 64
evaluate_every = 0
runtime.threads = 1
"""


def loopback_bytes() -> int:
    """Return the bytes that the loopback interface has transmitted."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    (counts,) = (line.split(":")[1] for line in lines if line.strip().startswith("lo:"))
    return int(counts.split()[8])


def train(recipe: Path, run: Path, processes: int, *sets: str) -> int:
    """Train under torchrun and return the bytes that were sent."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "-m", "--", "harken"]
    arguments = ["train", str(recipe), "--run", str(run)]
    arguments += [word for item in sets for word in ("--set", item)]
    before = loopback_bytes()
    subprocess.run([*torchrun, *arguments], check=True, stdout=sys.stderr, timeout=300)
    return loopback_bytes() - before


def vocabulary(run: Path) -> int:
    """Return the number of rows of the embedding of a trained model."""
    with safe_open(run / "model.safetensors", "pt") as weights:
        (name,) = (key for key in weights.keys() if key.endswith("embedding.weight"))  # noqa: SIM118
        return int(weights.get_slice(name).get_shape()[0])


def predict(recipe: Path, processes: int, entries: int, *sets: str) -> dict[str, int]:
    """Return the predicted bytes that each process sends per step, by reduction."""
    arguments = ["cost", str(recipe), "--json", "--vocabulary", str(entries)]
    arguments += ["--processes", str(processes), "--bandwidth", "10"]
    arguments += [word for item in sets for word in ("--set", item)]
    done = subprocess.run([*HARKEN, *arguments], check=True, stdout=subprocess.PIPE, timeout=300)
    steps = [step for step in json.loads(done.stdout)["steps"] if step["processes"] == processes]
    return {step["reduction"]: step["sent_bytes"] for step in steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reductions", nargs="+", default=["exact", "fast"])
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    processes, results = options.processes, {}
    micro_batches = f"training.micro_batches={processes}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = folder / "lm.toml"
        recipe.write_text(RECIPE, encoding="utf-8")
        data = ["data", "sentences", "--sentences", "60", "--out", str(folder / "sentences")]
        subprocess.run([*HARKEN, *data], check=True, stdout=sys.stderr)
        for reduction in options.reductions:
            runtime = f"training.runtime.reduction={reduction}"
            runs = {steps: folder / f"{reduction}-{steps}" for steps in STEPS}
            few, many = (
                train(recipe, run, processes, micro_batches, runtime, f"training.steps={steps}")
                for steps, run in runs.items()
            )
            measured = (many - few) / (STEPS[1] - STEPS[0]) / processes
            entries = vocabulary(runs[STEPS[0]])
            predicted = predict(recipe, processes, entries, micro_batches)[reduction]
            ratio = round(predicted / measured, 4)
            results[reduction] = {
                "predicted": predicted,
                "measured": round(measured),
                "ratio": ratio,
            }
    print(json.dumps({"processes": processes, "sent_bytes_per_step": results}))


if __name__ == "__main__":
    main()
