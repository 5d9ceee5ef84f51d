"""Write a speech corpus: 16-bit WAV files, and a manifest for each split.

    FOLDER/spoken/train/00001.wav …
    FOLDER/train.jsonl    {"audio": "spoken/train/00001.wav", "text": …, "speaker": …,
                           "words": [{"word": …, "start": …, "end": …}, …]}

Paths are relative to the manifest, so the folder can be moved. The folder of audio files gets its
final name when all of them are complete; then the manifests are written.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import soundfile
from jaxtyping import Float

from harken.files import replacing_folder, sync
from harken.formats.examples import SpokenWord, Utterance
from harken.formats.manifest import write_manifest
from harken.formats.split import Split
from harken.synthetic.draws import require_only_generated

Signal = Float[np.ndarray, "_samples"]  # mono, between -1 and 1
Recording = tuple[Utterance, Signal]

_GENERATED = re.compile(r"(train|dev|test)(/\d+\.wav)?")
_SYNC_THREADS = 16  # write files to the disk in parallel


def audio_path(name: str, split: Split, index: int) -> Path:
    """Return the path of an audio file relative to its manifest."""
    return Path(name, split, f"{index + 1:05}.wav")


def make_recording(
    audio: Path,
    speaker: str,
    words: Sequence[str],
    spans: Iterable[tuple[int, int]],
    signal: Signal,
    rate: int,
) -> Recording:
    """Return a recording with a peak of at most 1.

    spans: for each word, the index of its first sample, and of the sample after its last
    """
    times = tuple(  # seconds, to the microsecond
        SpokenWord(word, round(start / rate, 6), round(end / rate, 6))
        for word, (start, end) in zip(words, spans, strict=True)
    )
    return Utterance(audio, " ".join(words), speaker, words=times), limit_peak(signal)


def write_recordings(
    splits: Mapping[Split, Iterable[Recording]], folder: Path, *, name: str, rate: int
) -> list[Path]:
    """Write audio files to the folder `name` and a manifest of each split; return the manifests."""
    audio = folder / name
    require_only_generated(audio, _GENERATED)
    written: dict[Split, list[Utterance]] = {}
    with replacing_folder(audio) as unfinished:
        for split, recordings in splits.items():
            (unfinished / split).mkdir()
            written[split] = []
            for utterance, signal in recordings:
                write_wav(unfinished / utterance.audio.relative_to(name), signal, rate)
                written[split].append(replace(utterance, audio=folder / utterance.audio))
        with ThreadPoolExecutor(_SYNC_THREADS) as pool:
            list(pool.map(sync, unfinished.glob("*/*.wav")))
    manifests = [folder / f"{split}.jsonl" for split in written]
    for path, utterances in zip(manifests, written.values(), strict=True):
        write_manifest(utterances, path)
    return manifests


def write_wav(path: Path, signal: Signal, rate: int) -> None:
    """Write a mono file of 16 bits; samples that were read from 16 bits are unchanged."""
    samples = np.clip(np.rint(signal * 2.0**15), -(2**15), 2**15 - 1)
    soundfile.write(path, samples.astype(np.int16), rate)


def limit_peak(signal: Signal) -> Signal:
    """Return the signal, scaled down as a whole if a peak exceeds 1."""
    peak = np.abs(signal).max(initial=0.0)
    return signal / peak if peak > 1.0 else signal
