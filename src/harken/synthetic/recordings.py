"""Write a speech corpus: 16-bit WAV files, and a manifest for each part.

    FOLDER/train.jsonl               {"audio": "spoken/train/00001.wav", "text": …, "speaker": …,
    FOLDER/spoken/train/00001.wav …   "words": [{"word": …, "start": …, "end": …}, …]}

Paths are relative to the manifest, so the folder can be moved. Files are renamed to their final
names when all of them are complete.
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
from harken.formats.split import Part
from harken.synthetic.draws import require_generated

Signal = Float[np.ndarray, "_samples"]  # mono, between -1 and 1
Recording = tuple[Utterance, Signal]

_GENERATED = re.compile(r"(train|dev|test)(/\d+\.wav)?")
_AT_ONCE = 16  # files that are synced in parallel


def audio_path(name: str, part: Part, index: int) -> Path:
    """Return the path of an audio file relative to its manifest."""
    return Path(name, part, f"{index + 1:05}.wav")


def make_recording(
    audio: Path,
    speaker: str,
    words: Sequence[str],
    edges: Iterable[tuple[int, int]],
    signal: Signal,
    rate: int,
) -> Recording:
    """Return a recording of words; edges are the samples at which each word starts and ends."""
    times = tuple(  # seconds, to the microsecond
        SpokenWord(word, round(start / rate, 6), round(end / rate, 6))
        for word, (start, end) in zip(words, edges, strict=True)
    )
    return Utterance(audio, " ".join(words), speaker, words=times), within_range(signal)


def write_recorded(
    parts: Mapping[Part, Iterable[Recording]], folder: Path, *, name: str, rate: int
) -> list[Path]:
    """Write audio files to the folder `name` and a manifest of each part; return the manifests."""
    audio = folder / name
    require_generated(audio, _GENERATED)
    written: dict[Part, list[Utterance]] = {}
    with replacing_folder(audio) as sounds:
        for part, recordings in parts.items():
            (sounds / part).mkdir()
            written[part] = []
            for utterance, signal in recordings:
                write_wav(sounds / utterance.audio.relative_to(name), signal, rate)
                written[part].append(replace(utterance, audio=folder / utterance.audio))
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(sync, sounds.glob("*/*.wav")))
    manifests = [folder / f"{part}.jsonl" for part in written]
    for path, utterances in zip(manifests, written.values(), strict=True):
        write_manifest(utterances, path)
    return manifests


def write_wav(path: Path, signal: Signal, rate: int) -> None:
    """Write one channel of 16 bits; samples that come from 16 bits are unchanged."""
    steps = np.clip(np.rint(signal * 2.0**15), -(2**15), 2**15 - 1)
    soundfile.write(path, steps.astype(np.int16), rate)


def within_range(signal: Signal) -> Signal:
    """Return the signal, scaled down as a whole if a peak exceeds 1."""
    peak = np.abs(signal).max(initial=0.0)
    return signal / peak if peak > 1.0 else signal
