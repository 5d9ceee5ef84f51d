"""Frames of a filterbank a second, against kaldi-native-fbank on the same cores.

    python benchmarks/filterbank.py                  on sound made here
    python benchmarks/filterbank.py a.wav b.flac     on your own
    python benchmarks/filterbank.py --rounds 51 --json

    one core      one thread of ours, one process of theirs, in seconds of the processor
    two threads   two threads of ours, one process of theirs, which has no threads
    two cores     two processes of each, with half of the sounds each; no frames are handed back

Both start from the same arrays of float32 and end with the frames in arrays. Theirs gets each sound
whole and as a list, which it takes faster than an array. The sides take turns, so that a busy
machine slows both, though not quite alike: ours waits for memory, and threads for one another. A
figure is the median of the ratios of neighboring turns.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import kaldi_native_fbank
import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from harken.encode.filterbank import Filterbank, FilterbankConfig
from harken.training.runtime import prepare

CONFIGS = {"16 kHz, 80 bands": (16000, 80), "8 kHz, 40 bands": (8000, 40)}
SOUNDS = 48  # made, if none are given
TOGETHER = 8  # sounds of like length in a batch of ours
Sounds = list[np.ndarray]
Side = Callable[[Sounds, int, int], list[np.ndarray]]


def made(rate: int, count: int, random: np.random.Generator) -> Sounds:
    """Gliding tones with overtones over noise, of one to ten seconds."""
    sounds = []
    for seconds in random.uniform(1, 10, size=count):
        at = np.arange(int(seconds * rate)) / rate
        pitch = 120 + 40 * np.sin(2 * np.pi * 0.7 * at + random.uniform(0, 6))
        phase = 2 * np.pi * np.cumsum(pitch) / rate
        tones = sum(np.sin(n * phase) / n for n in range(1, 20))
        loud = 0.1 * (1 + np.sin(2 * np.pi * 2.3 * at))
        sounds.append((loud * tones + 0.003 * random.normal(size=len(at))).astype(np.float32))
    return sounds


def read(paths: Sequence[Path], rate: int) -> Sounds:
    import soundfile
    import soxr

    found = (soundfile.read(path, dtype="float32", always_2d=True) for path in paths)
    return [soxr.resample(sound.mean(axis=1), of, rate) for sound, of in found]


def theirs(sounds: Sounds, rate: int, bins: int) -> list[np.ndarray]:
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.dither = 0
    options.frame_opts.samp_freq = rate
    options.mel_opts.num_bins = bins
    frames = []
    for sound in sounds:
        bank = kaldi_native_fbank.OnlineFbank(options)
        bank.accept_waveform(rate, sound.tolist())
        bank.input_finished()
        frames.append(np.stack([bank.get_frame(n) for n in range(bank.num_frames_ready)]))
    return frames


@cache
def built(rate: int, bins: int) -> Filterbank:
    return FilterbankConfig(sample_rate=rate, mel_bins=bins).build()


def ours(sounds: Sounds, rate: int, bins: int) -> list[np.ndarray]:
    found = []
    for first in range(0, len(sounds), TOGETHER):
        some = [torch.from_numpy(one) for one in sounds[first : first + TOGETHER]]
        lengths = torch.tensor([len(one) for one in some])
        frames, present = built(rate, bins)(pad_sequence(some, batch_first=True), lengths)
        counts = present.sum(dim=1).tolist()
        found += [row[:count].numpy() for row, count in zip(frames, counts, strict=True)]
    return found


KEPT: Sounds = []  # by each process, so that sounds need not travel while it is timed


def keep(sounds: Sounds) -> None:
    prepare(torch.device("cpu"))
    torch.set_num_threads(1)
    KEPT.extend(sounds)


def half(side: Side, which: int, rate: int, bins: int) -> None:
    side(KEPT[which::2], rate, bins)


def ratio(
    run: Callable[[Side], object], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """How many times longer theirs takes: the median and the quarters beside it."""
    run(ours), run(theirs)
    ratios = []
    for number in range(rounds):
        sides = [ours, theirs]
        if number % 2:  # neither side always goes first
            sides.reverse()
        took = {}
        for side in sides:
            started = clock()
            run(side)
            took[side] = clock() - started
        ratios.append(took[theirs] / took[ours])
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {"ratio": round(middle, 2), "low": round(low, 2), "high": round(high, 2)}


def measure(sounds: Sounds, rate: int, bins: int, rounds: int) -> dict[str, object]:
    pairs = list(zip(ours(sounds, rate, bins), theirs(sounds, rate, bins), strict=True))
    found: dict[str, object] = {
        "frames": sum(len(one) for one, _ in pairs),
        "greatest_difference": max(float(np.abs(one - other).max()) for one, other in pairs),
    }

    def alone(side: Side) -> None:
        side(sounds, rate, bins)

    torch.set_num_threads(1)
    found["one core"] = ratio(alone, rounds, time.process_time)
    torch.set_num_threads(2)
    found["two threads"] = ratio(alone, rounds)
    # A fork would copy the locks of threads without the threads.
    context = get_context("spawn")
    with ProcessPoolExecutor(2, context, initializer=keep, initargs=(sounds,)) as processes:

        def together(side: Side) -> None:
            for done in [processes.submit(half, side, which, rate, bins) for which in (0, 1)]:
                done.result()

        found["two cores"] = ratio(together, rounds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sounds", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    prepare(torch.device("cpu"))
    for name, (rate, bins) in CONFIGS.items():
        sounds = read(options.sounds, rate) or made(rate, SOUNDS, np.random.default_rng(0))
        found = measure(sorted(sounds, key=len), rate, bins, options.rounds)
        if options.json:
            print(json.dumps({"sound": name, **found}), flush=True)
            continue
        print(
            f"{name}: {found['frames']} frames, values differ by at most "
            f"{found['greatest_difference']:.1e}"
        )
        for cores in ("one core", "two threads", "two cores"):
            one = found[cores]
            print(
                f"    {cores:12} {one['ratio']:5.1f} times faster ({one['low']} to {one['high']})"
            )


if __name__ == "__main__":
    main()
