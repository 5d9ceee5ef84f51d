"""Compare the speed of Harken's filterbank with kaldi-native-fbank on the same audio and cores.

    python benchmarks/filterbank.py                  synthetic audio
    python benchmarks/filterbank.py a.wav b.flac     your own files
    python benchmarks/filterbank.py --rounds 51 --json

Both libraries get float32 samples and return arrays of log-mel frames. kaldi-native-fbank gets one
utterance at a time, as a list, which is faster than an array; Harken gets padded batches of eight.
The benchmark prints the largest difference of the values and three speeds, time of
kaldi-native-fbank / time of Harken, for 16 kHz with 80 bands and 8 kHz with 40 bands:

    one core      one thread each, in CPU seconds
    two threads   Harken with two threads, kaldi-native-fbank with its only one, in seconds
    two cores     two processes each, half of the audio per process, in seconds; the frames are not
                  sent back

The two libraries alternate, so that other load on the machine slows down both. A speed is the
median of the ratios of consecutive runs, with the first and third quartile in parentheses.
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
from harken.training.runtime import configure_process

CONFIGS = {"16 kHz, 80 bands": (16000, 80), "8 kHz, 40 bands": (8000, 40)}  # sample rate, mel bins
UTTERANCES = 48  # synthetic ones, if no files are given
BATCH_SIZE = 8
Waveforms = list[np.ndarray]
Extract = Callable[[Waveforms, int, int], list[np.ndarray]]  # (waveforms, sample rate, mel bins)


def synthetic_audio(sample_rate: int, count: int, random: np.random.Generator) -> Waveforms:
    """Return harmonic tones of varying pitch with noise, one to ten seconds each."""
    waveforms = []
    for seconds in random.uniform(1, 10, size=count):
        times = np.arange(int(seconds * sample_rate)) / sample_rate
        pitch = 120 + 40 * np.sin(2 * np.pi * 0.7 * times + random.uniform(0, 6))
        phase = 2 * np.pi * np.cumsum(pitch) / sample_rate
        tones = sum(np.sin(n * phase) / n for n in range(1, 20))
        amplitude = 0.1 * (1 + np.sin(2 * np.pi * 2.3 * times))
        noise = 0.003 * random.normal(size=len(times))
        waveforms.append((amplitude * tones + noise).astype(np.float32))
    return waveforms


def read_audio(paths: Sequence[Path], sample_rate: int) -> Waveforms:
    import soundfile
    import soxr

    files = (soundfile.read(path, dtype="float32", always_2d=True) for path in paths)
    return [soxr.resample(audio.mean(axis=1), rate, sample_rate) for audio, rate in files]


def extract_kaldi(waveforms: Waveforms, sample_rate: int, bins: int) -> list[np.ndarray]:
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.dither = 0
    options.frame_opts.samp_freq = sample_rate
    options.mel_opts.num_bins = bins
    features = []
    for waveform in waveforms:
        fbank = kaldi_native_fbank.OnlineFbank(options)
        fbank.accept_waveform(sample_rate, waveform.tolist())
        fbank.input_finished()
        features.append(np.stack([fbank.get_frame(n) for n in range(fbank.num_frames_ready)]))
    return features


@cache
def build_filterbank(sample_rate: int, bins: int) -> Filterbank:
    return FilterbankConfig(sample_rate=sample_rate, mel_bins=bins).build()


def extract_harken(waveforms: Waveforms, sample_rate: int, bins: int) -> list[np.ndarray]:
    filterbank, features = build_filterbank(sample_rate, bins), []
    for first in range(0, len(waveforms), BATCH_SIZE):
        batch = [torch.from_numpy(waveform) for waveform in waveforms[first : first + BATCH_SIZE]]
        lengths = torch.tensor([len(waveform) for waveform in batch])
        frames, present = filterbank(pad_sequence(batch, batch_first=True), lengths)
        counts = present.sum(dim=1).tolist()
        features += [row[:count].numpy() for row, count in zip(frames, counts, strict=True)]
    return features


WORKER_AUDIO: Waveforms = []  # of a worker process, which gets the audio before the timing starts


def init_worker(waveforms: Waveforms) -> None:
    configure_process(torch.device("cpu"))
    torch.set_num_threads(1)
    WORKER_AUDIO.extend(waveforms)


def extract_half(extract: Extract, half: int, sample_rate: int, bins: int) -> None:
    extract(WORKER_AUDIO[half::2], sample_rate, bins)


def speedup(
    run: Callable[[Extract], object], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the median and the quartiles of time of kaldi-native-fbank / time of Harken."""
    run(extract_harken), run(extract_kaldi)
    ratios = []
    for number in range(rounds):
        order = [extract_harken, extract_kaldi]
        if number % 2:  # each library is first in every second round
            order.reverse()
        seconds = {}
        for extract in order:
            started = clock()
            run(extract)
            seconds[extract] = clock() - started
        ratios.append(seconds[extract_kaldi] / seconds[extract_harken])
    low, median, high = statistics.quantiles(ratios, n=4)
    return {"ratio": round(median, 2), "low": round(low, 2), "high": round(high, 2)}


def measure(waveforms: Waveforms, sample_rate: int, bins: int, rounds: int) -> dict[str, object]:
    """Return the number of frames, the largest difference and the three speeds."""
    features = [
        extract(waveforms, sample_rate, bins) for extract in (extract_harken, extract_kaldi)
    ]
    pairs = list(zip(*features, strict=True))
    results: dict[str, object] = {
        "frames": sum(len(harken) for harken, _ in pairs),
        "max_difference": max(float(np.abs(harken - kaldi).max()) for harken, kaldi in pairs),
    }

    def run_here(extract: Extract) -> None:
        extract(waveforms, sample_rate, bins)

    torch.set_num_threads(1)
    results["one core"] = speedup(run_here, rounds, time.process_time)
    torch.set_num_threads(2)
    results["two threads"] = speedup(run_here, rounds)
    # A fork would copy the locks of PyTorch's threads in an unknown state.
    context = get_context("spawn")
    with ProcessPoolExecutor(2, context, initializer=init_worker, initargs=(waveforms,)) as pool:

        def run_in_two(extract: Extract) -> None:
            halves = [pool.submit(extract_half, extract, n, sample_rate, bins) for n in (0, 1)]
            for half in halves:
                half.result()

        results["two cores"] = speedup(run_in_two, rounds)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("audio", nargs="*", type=Path, help="audio files (default: synthetic)")
    parser.add_argument("--rounds", type=int, default=21, help="measurements per speed (21)")
    parser.add_argument("--json", action="store_true", help="print a JSON object per configuration")
    options = parser.parse_args()
    configure_process(torch.device("cpu"))
    for name, (sample_rate, bins) in CONFIGS.items():
        waveforms = read_audio(options.audio, sample_rate)
        if not waveforms:
            waveforms = synthetic_audio(sample_rate, UTTERANCES, np.random.default_rng(0))
        results = measure(sorted(waveforms, key=len), sample_rate, bins, options.rounds)
        if options.json:
            print(json.dumps({"configuration": name, **results}), flush=True)
            continue
        print(
            f"{name}: {results['frames']} frames, values differ by at most "
            f"{results['max_difference']:.1e}"
        )
        for cores in ("one core", "two threads", "two cores"):
            speed = results[cores]
            print(
                f"    {cores:12} {speed['ratio']:5.1f} times faster "
                f"({speed['low']} to {speed['high']})"
            )


if __name__ == "__main__":
    main()
