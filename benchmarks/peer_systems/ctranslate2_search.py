"""Decoding with CTranslate2, in a process without PyTorch: two OpenMP runtimes clash."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

CONVERT = "from peer_systems.decoding import print_for_ctranslate2; print_for_ctranslate2()"


def search(*, beam: int, batch: int, precision: str, **sizes: int) -> Callable[[], float]:
    """Convert the model in another process, load it, and return a function that translates."""
    command = [sys.executable, "-c", CONVERT, json.dumps({"batch": batch, "sizes": sizes})]
    folder = Path(__file__).parents[1]
    converted = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    model, sources = json.loads(converted.stdout.splitlines()[-1])
    sys.modules["torch"] = None  # type: ignore[assignment]  # ctranslate2 imports it if it can
    import ctranslate2

    threads = int(os.environ["OMP_NUM_THREADS"])
    translator = ctranslate2.Translator(
        model, device="cpu", compute_type=precision, inter_threads=1, intra_threads=threads
    )
    shutil.rmtree(model)
    steps = sizes["steps"]

    def run() -> float:
        results = translator.translate_batch(sources, beam_size=beam, max_decoding_length=steps)
        assert all(len(result.hypotheses[0]) == steps for result in results)
        return steps

    return run
