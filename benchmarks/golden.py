"""Check that two versions of Harken compute the same numbers, bit for bit.

    git worktree add ../old REVISION
    python benchmarks/golden.py ../old .

A version is a worktree, or a file that `--save` wrote for a worktree:

    python benchmarks/golden.py ../old --save old.json
    python benchmarks/golden.py old.json .

Both versions run at the same time on this machine, one thread each, on the same small synthetic
data: every task, and a variant for each model family, optimizer, score and position. They are
compared in

    - the loss of every step, and the weights (tensors without their names, which may change)
    - metrics, predictions (greedy search, beam search with n-best lists, samples)
    - attention, head statistics and ablations as JSON, and the text of the report pages
    - a run that was interrupted and resumed

The benchmark prints up to five differences per comparison as `comparison / path: 'old' -> 'new'`,
and a summary. The exit code is 1 if there are differences.

`--renames FILE` is a JSON object that maps old names to new ones: recipe keys, options and JSON
fields that were renamed between the versions. `--accept TEXT` skips comparisons whose name contains
TEXT; it may be repeated.
"""

import argparse
import contextlib
import hashlib
import html
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

GPT = ("model.layers=2", "model.width=32", "model.max_length=64", "model.attention.heads=4")
STEPS = 50  # of training
TEXT = {"data.train": "sentences/text.txt", "data.dev": "0.1"}
# The recipe section with the number of steps.
STAGE = {
    "answer": "training.pretrain",
    "tag": "training.tags",
    "fill": "training",
    "lm": "training",
    "translate": "training.pairs",
    "transcribe": "training.speech",
    "caption": "training.captions",
}
DATA: dict[str, dict[str, str]] = {
    "answer": {
        "data.pretrain": "people/people.txt",
        "data.train": "people/questions.train.tsv",
        "data.dev": "people/questions.test.tsv",
    },
    "tag": {"data.train": "sentences/train.conllu", "data.dev": "sentences/dev.conllu"},
    "fill": TEXT,
    "lm": TEXT,
    "translate": {
        f"data.{split}.{side}": f"sentences/{split}.{end}"
        for split in ("train", "dev")
        for side, end in (("source", "en"), ("target", "xx"))
    },
    "transcribe": {"data.train": "speech/train.jsonl", "data.dev": "speech/dev.jsonl"},
    "caption": {"data.train": "scenes/train.jsonl", "data.dev": "scenes/dev.jsonl"},
}
SMALL: dict[str, tuple[str, ...]] = {
    "answer": (*GPT, "training.pretrain.batch_tokens=512", "training.finetune.steps=20"),
    "tag": ("model.width=40", "model.characters.width=16", "training.tags.batch_tokens=128"),
    "fill": ("model.width=24", "training.batch_tokens=256"),
    "lm": (*GPT, "training.batch_tokens=256", "search.max_tokens=20"),
    "translate": (
        "model.encoder.layers=1",
        "model.decoder.layers=1",
        "model.decoder.width=32",
        "training.pairs.batch_tokens=256",
    ),
    "transcribe": (
        "model.width=16",
        "model.frontend.channels=4",
        "model.encoder.layers=1",
        "training.speech.batch_frames=400",
    ),
    "caption": (
        "model.width=16",
        "model.frontend.channels=[4,5,6]",
        "model.decoder={kind='rnn',width=16,hidden=16}",
        "training.captions.batch_captions=8",
    ),
}
POSITIONS = ("none", "learned", "sinusoid", "fourier", "rotary", "alibi", "relative")
TRANSFORMER_DECODER = "model.decoder={kind='transformer',layers=1,width=16,max_length=64}"
VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
    "lm": {
        **{
            f"score {score}": (f"model.attention.score.kind={score}",)
            for score in ("dot", "additive", "merged", "synthesizer", "transformer_xl")
        },
        "score random synthesizer": ("model.attention.score={kind='synthesizer',form='random'}",),
        **{f"position {position}": (f"model.position.kind={position}",) for position in POSITIONS},
        **{
            f"optimizer {kind}": (f"training.optimizer.kind={kind}",)
            for kind in ("adamw", "muon", "sgd")
        },
        "rnn": ("model={kind='rnn',width=32}",),
        "cnn": ("model={kind='cnn',width=32}",),
        "bpe": ("encode.kind=bpe",),
        "dropout": ("model.dropout=0.2",),
    },
    "tag": {
        kind: (f"model.encoder={{kind='{kind}',layers=2}}",)
        for kind in ("tanh", "gru", "gated", "stride2", "transformer")
    },
    "fill": {"masked": ("model={kind='masked',width=24}",)},
    "translate": {
        "rnn": (
            "model.encoder={kind='gru',direction='both'}",
            "model.decoder={kind='rnn',width=16,hidden=16}",
        ),
        "gated": ("model.encoder={kind='gated',layers=2}",),
    },
    "transcribe": {
        "transformer": ("model.encoder={kind='transformer',layers=1}",),
        "joint": (TRANSFORMER_DECODER,),
        "attention": (TRANSFORMER_DECODER, "model.ctc=false"),
        "rnn with memory": (
            "model.encoder={kind='lstm',direction='both'}",
            "model.decoder={kind='rnn',width=16,hidden=16}",
            "model.attention_window_ms=400",
        ),
    },
    "caption": {
        "transformer": (TRANSFORMER_DECODER, "model.encoder.layers=1"),
        "patch": ("model.frontend={kind='patch',patch=8}", "model.encoder.layers=1"),
    },
}
INPUTS = {
    "answer": "people/asked.txt",
    "tag": "sentences/test.en",
    "fill": "sentences/blanks.txt",
    "lm": "sentences/prompts.txt",
    "translate": "sentences/test.en",
    "transcribe": "speech/spoken/test/00001.wav",
    "caption": "scenes/examples/0.png",
}
ALIGN_OPTIONS = (
    *("--source", "sentences/test.en", "--target", "sentences/test.xx"),
    *("--links", "sentences/links.txt"),
)
# Variants on which the commands of inspection run too.
INSPECTED = (
    "tag transformer",
    "fill masked",
    "translate rnn",
    "transcribe attention",
    "caption transformer",
    "lm score merged",
    "lm score additive",
    "lm position rotary",
)
IGNORED = ("seconds", "error", "title", "what")  # JSON fields: times, and texts for people


class Collector:
    """Runs the commands of one version and collects their results by name."""

    def __init__(self, tree: Path, renames: Mapping[str, str]) -> None:
        self.tree, self.renames, self.results = tree, renames, {}  # type: ignore[var-annotated]

    def renamed(self, argument: str) -> str:
        """Return a command-line argument or `key=value` with the names of this version."""
        key, equals, value = argument.partition("=")
        return self.renames.get(key, key) + equals + value

    def command(self, name: str, *arguments: str) -> None:
        """Run `harken ARGUMENTS`; store its exit code and output, parsed if it is JSON."""
        from harken.cli.main import main

        output = io.StringIO()
        errors = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                code = main([self.renamed(argument) for argument in arguments])
            except SystemExit as error:
                code = error.code  # type: ignore[assignment]
        printed = output.getvalue()
        with contextlib.suppress(ValueError):
            printed = json.loads(printed)
        self.results[name] = {"exit code": code, "output": printed}
        if code:
            self.results[name]["error"] = errors.getvalue()[-2000:]

    def run(self, name: str, task: str, *settings: str, inspect: bool = False) -> None:
        """Train a model into the folder `name`; collect all that the run produces."""
        stage = STAGE[task]
        values = [f"{key}={value}" for key, value in DATA[task].items()]
        values += [*SMALL[task], f"{stage}.steps={STEPS}", f"{stage}.evaluate_every=25", *settings]
        options = [option for value in values for option in ("--set", self.renamed(value))]
        recipe = str(self.tree / "recipes" / f"{task}.toml")
        self.command(f"{name}: train", "train", recipe, "--run", name, "--json", *options)
        run = Path(name)
        if not (run / "model.safetensors").exists():
            return
        self.collect_run(name)
        self.command(f"{name}: predict", "predict", name, INPUTS[task], "--json")
        if task in ("translate", "caption", "transcribe"):
            search = ("--beam", "5", "--nbest", "3")
            self.command(f"{name}: beam", "predict", name, INPUTS[task], "--json", *search)
        if inspect:
            sampling = ("--temperature", "0.9", "--seed", "3") if task == "lm" else ()
            self.command(f"{name}: sample", "predict", name, INPUTS[task], "--json", *sampling)
            example = INPUTS[task]
            if task not in ("transcribe", "caption"):
                example = Path(example).read_text(encoding="utf-8").splitlines()[0]
            page = f"{name}-i"
            self.command(f"{name}: inspect", "inspect", name, example, "--out", page, "--json")
            self.command(f"{name}: heads", "heads", name, "--json")
            self.command(f"{name}: ablate", "ablate", name, "--json", "--examples", "3")
            if task == "translate":
                self.command(f"{name}: align", "align", name, *ALIGN_OPTIONS, "--json")
            report = (run / "report.html").read_text(encoding="utf-8")
            report = re.sub(r"<(style|script)\b.*?</\1>", "", report, flags=re.DOTALL)
            lines = html.unescape(re.sub(r"<[^>]*>", "\n", report)).splitlines()
            self.results[f"{name}: page"] = [line.strip() for line in lines if line.strip()]

    def collect_run(self, name: str) -> None:
        """Store the exact losses, and a digest of every tensor without its name."""
        from safetensors.numpy import load_file

        run = Path(name)
        events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        self.results[f"{name}: losses"] = [
            float(event.get("loss", event.get("value"))).hex() for event in events
        ]
        self.results[f"{name}: weights"] = sorted(
            hashlib.sha256(str(tensor.shape).encode() + tensor.tobytes()).hexdigest()
            for tensor in load_file(run / "model.safetensors").values()
        )


def collect(tree: Path, renames: Mapping[str, str]) -> dict[str, Any]:
    """Return all results of the version that is on the Python path."""
    collector = Collector(tree, renames)
    for arguments in (
        ("people", "--people", "60", "--places", "8"),
        ("sentences", "--sentences", "120"),
        ("speech", "--utterances", "16"),
        ("scenes", "--scenes", "30"),
    ):
        kind = arguments[0]
        collector.command(f"data {kind}", "data", *arguments, "--out", kind)
    Path("sentences/prompts.txt").write_text("the duck\na river\n", encoding="utf-8")
    Path("sentences/blanks.txt").write_text("the ___ walks .\n", encoding="utf-8")
    pairs = len(Path("sentences/test.en").read_text(encoding="utf-8").splitlines())
    Path("sentences/links.txt").write_text("1-1 2-2 2p3\n" * pairs, encoding="utf-8")
    questions = Path("people/questions.test.tsv").read_text(encoding="utf-8").splitlines()
    inputs = "".join(line.split("\t")[0] + "\n" for line in questions[:5])
    Path("people/asked.txt").write_text(inputs, encoding="utf-8")
    collector.results["data files"] = {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path().rglob("*.*"))
    }
    for task in DATA:
        collector.run(task, task, inspect=True)
        for variant, settings in VARIANTS.get(task, {}).items():
            name = f"{task} {variant}"
            collector.run(name, task, *settings, inspect=name in INSPECTED)
    interrupt_and_resume(collector)
    collector.command("claims", "claims", "--json")
    return collector.results


def interrupt_and_resume(collector: Collector) -> None:
    """Train an `lm` model that sends SIGTERM to itself before an evaluation, and resume it."""
    import harken.training.loop as loop

    step = loop.Training._step
    calls = 0

    def step_or_stop(self: Any, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 25:
            signal.raise_signal(signal.SIGTERM)
        return step(self, *arguments)

    loop.Training._step = step_or_stop  # type: ignore[method-assign]
    try:
        collector.run("stopped", "lm")
    finally:
        loop.Training._step = step  # type: ignore[method-assign]
    collector.command("stopped: resume", "train", "stopped/recipe.toml", "--resume", "--json")
    collector.collect_run("stopped")


def differences(old: Any, new: Any, where: str, renames: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths at which two results differ, except in the fields of `IGNORED`."""
    if isinstance(old, dict) and isinstance(new, dict):
        old = {renames.get(key, key): value for key, value in old.items() if key not in IGNORED}
        new = {key: value for key, value in new.items() if key not in IGNORED}
        for key in sorted(old.keys() | new.keys()):
            if key not in old or key not in new:
                yield f"{where} / {key}: only in the {'new' if key in new else 'old'} version"
            else:
                yield from differences(old[key], new[key], f"{where} / {key}", renames)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, f"{where} [{index}]", renames)
    elif old != new:
        yield f"{where}: {str(old)[:100]!r} -> {str(new)[:100]!r}"


def start(version: Path, folder: Path, renames: Path | None) -> subprocess.Popen[bytes]:
    """Start a process that writes the results of a worktree to `folder`/results.json."""
    tree = version.resolve()
    work = folder / "work"
    work.mkdir(parents=True)
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), str(tree)]
    command += ["--collect", str(folder / "results.json")]
    if renames:
        command += ["--renames", str(renames.resolve())]
    return subprocess.Popen(command, cwd=work, env=environment)


def results(versions: list[Path], renames: Path | None) -> list[dict[str, Any]]:
    """Return the results of each version: read from a saved file, or collected in a worktree."""
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / str(number) for number in range(len(versions))]
        running = {
            folder: start(version, folder, renames if number else None)
            for number, (version, folder) in enumerate(zip(versions, folders, strict=True))
            if version.is_dir()
        }
        codes = [process.wait() for process in running.values()]
        if any(codes):
            sys.exit("collecting the results of a version failed; see the traceback above")
        texts = [
            # Some commands print paths, which contain the temporary folder.
            (folder / "results.json").read_text().replace(f"{folder}/", "")
            if folder in running
            else version.read_text()
            for version, folder in zip(versions, folders, strict=True)
        ]
        return [json.loads(text) for text in texts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "versions", nargs="+", type=Path, help="old and new worktree or results file"
    )
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="write the results of one version"
    )
    parser.add_argument("--renames", type=Path, metavar="FILE", help="JSON of old and new names")
    parser.add_argument("--accept", action="append", default=[], help="skip these comparisons")
    parser.add_argument("--collect", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    renames = json.loads(options.renames.read_text()) if options.renames else {}
    if options.collect:
        collected = collect(options.versions[0], renames)
        options.collect.write_text(json.dumps(collected), encoding="utf-8")
        return
    if options.save:
        if len(options.versions) != 1:
            parser.error(f"--save: expected one version, got {len(options.versions)}")
        (saved,) = results(options.versions, options.renames)
        options.save.write_text(json.dumps(saved), encoding="utf-8")
        return
    if len(options.versions) != 2:
        parser.error(f"expected an old and a new version, got {len(options.versions)}")
    old, new = results(options.versions, options.renames)
    different = 0
    for name in sorted(old.keys() | new.keys()):
        if any(text in name for text in options.accept):
            continue
        lines = list(differences(old.get(name), new.get(name), name, renames))
        different += bool(lines)
        print(*lines[:5], sep="\n", end="\n" if lines else "")
        if len(lines) > 5:
            print(f"  … and {len(lines) - 5} more")
    failed = [name for name, value in new.items() if isinstance(value, dict) and "error" in value]
    print(f"{len(new)} comparisons, {different} differ; {len(failed)} commands failed: {failed}")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
