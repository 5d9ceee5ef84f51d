"""Oracles: kaldi-native-fbank, and loops in float64 where it rounds."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import kaldi_native_fbank
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import harken.encode.filterbank
from harken.config import dumps, loads
from harken.encode.filterbank import (
    Filterbank,
    FilterbankConfig,
    frame_chunks,
    mel_triangles,
    window_function,
)
from harken.errors import UserError

TINY = FilterbankConfig(sample_rate=1000, window_ms=13.0, hop_ms=5.0, mel_bins=3, low_freq=11.0)


def sound(samples: int, rate: int, seed: int = 0) -> np.ndarray:
    """Return a gliding voice with noise and an offset."""
    random, at = np.random.default_rng((seed, samples)), np.arange(samples) / rate
    phase = 2 * np.pi * (130 * at + 40 * at**2)
    voice = sum(np.sin(n * phase) / n for n in range(1, 12))
    return (0.1 * voice + 0.01 * random.normal(size=samples) + 0.01).astype(np.float32)


def batch(sounds: list[np.ndarray], filler: float = math.nan) -> tuple[Tensor, Tensor]:
    """Return a batch that is padded with NaN, so that reading the padding shows."""
    lengths = [len(signal) for signal in sounds]
    signals = np.full((len(sounds), max(lengths, default=0)), filler, sounds[0].dtype)
    for row, signal in zip(signals, sounds, strict=True):
        row[: len(signal)] = signal
    return torch.from_numpy(signals), torch.tensor(lengths)


def rows_of(filterbank: Filterbank, sounds: list[np.ndarray]) -> list[np.ndarray]:
    frames, present = filterbank(*batch(sounds))
    assert frames.shape == (*present.shape, filterbank.config.mel_bins)
    counts = present.sum(dim=1).tolist()
    for row, mask, count in zip(frames, present, counts, strict=True):
        assert mask.tolist() == [index < count for index in range(len(mask))]
        assert (row[count:] == 0).all()
    return [row[:count].numpy() for row, count in zip(frames, counts, strict=True)]


def theirs(config: FilterbankConfig, signal: np.ndarray) -> np.ndarray:
    options = kaldi_native_fbank.FbankOptions()
    options.eps = config.floor
    framing, mel = options.frame_opts, options.mel_opts
    framing.dither = 0
    framing.samp_freq = config.sample_rate
    framing.frame_length_ms, framing.frame_shift_ms = config.window_ms, config.hop_ms
    framing.window_type = {"hann": "hanning"}.get(config.window, config.window)
    framing.preemph_coeff = config.preemphasis
    framing.remove_dc_offset = config.remove_dc
    framing.snip_edges = config.snip_edges
    mel.num_bins, mel.low_freq, mel.high_freq = config.mel_bins, config.low_freq, config.max_freq
    bank = kaldi_native_fbank.OnlineFbank(options)
    if len(signal):  # an empty signal ends the process
        bank.accept_waveform(config.sample_rate, signal.tolist())
    bank.input_finished()
    frames = [bank.get_frame(number) for number in range(bank.num_frames_ready)]
    return np.stack(frames) if frames else np.zeros((0, config.mel_bins), dtype=np.float32)


def check(config: FilterbankConfig) -> None:
    # 401 samples are one window and a half hop, or a window at 16 kHz; 83 are only mirrored.
    sounds = [sound(samples, config.sample_rate) for samples in (9001, 401, 83, 5003, 79)]
    for ours, signal in zip(rows_of(config.build(), sounds), sounds, strict=True):
        np.testing.assert_allclose(ours, theirs(config, signal), rtol=0, atol=1e-3)


@pytest.mark.parametrize("window", ["povey", "hann", "hamming"])
@pytest.mark.parametrize("snip_edges", [True, False])
@pytest.mark.parametrize(("rate", "bins"), [(8000, 40), (8000, 80), (16000, 40), (16000, 80)])
def test_values_equal_those_of_kaldi(rate: int, bins: int, snip_edges: bool, window: Any) -> None:
    check(FilterbankConfig(sample_rate=rate, mel_bins=bins, snip_edges=snip_edges, window=window))


@pytest.mark.parametrize(
    "option",
    [
        {"preemphasis": 0.0},
        {"preemphasis": 1.0},
        {"remove_dc": False},
        {"low_freq": 133.0, "high_freq": 6700.0},
        {"floor": 0.37},
        {"window_ms": 31.0, "hop_ms": 7.0},
        {"window_ms": 32.0},  # 512 samples: no padding
        {"sample_rate": 11025, "mel_bins": 23},  # not an integer number of samples
        {"mel_bins": 331, "low_freq": 0.0},  # bands without a frequency
    ],
)
def test_every_option_equals_that_of_kaldi(option: dict[str, Any]) -> None:
    check(FilterbankConfig(**option))
    check(FilterbankConfig(snip_edges=False, **option))


@pytest.mark.parametrize("snip_edges", [True, False])
def test_number_of_frames_equals_that_of_kaldi(snip_edges: bool) -> None:
    config = FilterbankConfig(sample_rate=8000, mel_bins=3, snip_edges=snip_edges)
    lengths = list(range(0, 487, 3))
    counts = [len(theirs(config, np.zeros(length, np.float32))) for length in lengths]
    assert config.build().count_frames(torch.tensor(lengths)).tolist() == counts


def test_silence_has_the_logarithm_of_the_floor() -> None:
    frames, _ = FilterbankConfig().build()(torch.zeros(2, 4001), torch.tensor([4001, 401]))
    assert frames[0].unique().tolist() == [pytest.approx(-23 * math.log(2))]


@pytest.mark.parametrize("offset", [0.0, 0.9])
def test_rounding_errors_are_smaller_than_those_of_kaldi(offset: float) -> None:
    """Where the two differ by more than 1e-3, the error is in the other."""
    config = FilterbankConfig(mel_bins=41)
    signal = (0.01 * sound(16001, 16000) + offset).astype(np.float32)
    (exact,) = rows_of(config.build(), [signal.astype(np.float64)])
    (ours,) = rows_of(config.build(), [signal])
    error, their_error = np.abs(ours - exact), np.abs(theirs(config, signal) - exact)
    assert error.max() < 1e-3
    assert np.sqrt((error**2).mean()) < np.sqrt((their_error**2).mean())


def by_definition(config: FilterbankConfig, signal: np.ndarray) -> np.ndarray:
    """Compute the energies in loops over frames, frequencies and bands."""
    window, hop = config.window_samples, config.hop_samples
    points = 2 ** math.ceil(math.log2(window))
    shape = window_function(config.window, window).numpy()
    triangles = mel_triangles(config, points).numpy()
    rows = []
    for start in range(0, len(signal) - window + 1, hop):
        frame = signal[start : start + window] - signal[start : start + window].mean()
        before = np.concatenate(([frame[0]], frame[:-1]))
        frame = shape * (frame - config.preemphasis * before)
        energies = np.zeros(config.mel_bins)
        for frequency in range(points // 2 + 1):
            turns = 2 * np.pi * frequency * np.arange(window) / points
            power = (frame @ np.cos(turns)) ** 2 + (frame @ np.sin(turns)) ** 2
            energies += triangles[frequency] * power
        rows.append(np.log(np.maximum(energies, config.floor)))
    return np.array(rows)


def test_the_definition_in_float64() -> None:
    signal = np.random.default_rng(3).normal(size=97)
    (ours,) = rows_of(TINY.build(), [signal])
    np.testing.assert_allclose(ours, by_definition(TINY, signal), rtol=0, atol=1e-11)


def test_triangles_by_hand() -> None:
    """Corners at mel 0, 1, 2 and 3 times a third of mel(4000); weights fall to 0 at each."""
    config = FilterbankConfig(sample_rate=8000, mel_bins=2, low_freq=0.0)
    triangles = mel_triangles(config, 256)
    third = 1127 * math.log(1 + 4000 / 700) / 3
    peaks = [700 * (math.exp(n * third / 1127) - 1) for n in (1, 2)]
    assert triangles.argmax(dim=0).tolist() == [round(peak / 31.25) for peak in peaks]
    assert triangles[0].tolist() == [0, 0]
    between = round(1000 / 31.25)  # falling in the first band, rising in the second
    assert triangles[between].sum() == pytest.approx(1)
    assert triangles[between, 1] == pytest.approx(1127 * math.log(1 + 1000 / 700) / third - 1)


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 97), min_size=1, max_size=7),
    st.sampled_from([1, 80, 200, 500]),  # samples; a frame has 16
    st.booleans(),
    st.sampled_from(["none", "level", "mean", "mean_and_variance"]),
)
def test_a_row_does_not_depend_on_its_batch(
    lengths: list[int], chunk: int, snip_edges: bool, normalize: Any
) -> None:
    filterbank = replace(TINY, snip_edges=snip_edges, normalize=normalize).build()
    sounds = [np.random.default_rng(length).normal(size=length) for length in lengths]
    alone = [rows_of(filterbank, [signal])[0] for signal in sounds]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harken.encode.filterbank, "CHUNK", chunk)
        together = rows_of(filterbank, sounds)
    for expected, frames in zip(alone, together, strict=True):
        np.testing.assert_allclose(frames, expected, rtol=0, atol=1e-10)


@given(st.lists(st.integers(0, 60), max_size=9), st.integers(1, 40))
def test_chunks_cover_every_frame_once(counts: list[int], max_frames: int) -> None:
    visits = np.zeros((len(counts), 60), dtype=int)
    for chunk in frame_chunks(counts, max_frames):
        assert 0 < visits[chunk].size <= max_frames
        visits[chunk] += 1
    assert visits.max(initial=0) <= 1
    assert all((row[:count] == 1).all() for row, count in zip(visits, counts, strict=True))


def test_empty_signals_and_batches() -> None:
    filterbank = FilterbankConfig(mel_bins=7, normalize="mean_and_variance").build()
    frames, present = filterbank(torch.zeros(3, 0), torch.zeros(3, dtype=torch.long))
    assert (frames.shape, present.shape) == ((3, 0, 7), (3, 0))
    frames, present = filterbank(torch.zeros(0, 501), torch.zeros(0, dtype=torch.long))
    assert (frames.shape, present.shape) == ((0, 0, 7), (0, 0))


@pytest.mark.parametrize("snip_edges", [True, False])
def test_the_time_of_a_click(snip_edges: bool) -> None:
    filterbank = FilterbankConfig(sample_rate=8000, mel_bins=11, snip_edges=snip_edges).build()
    for click in (0.1, 0.237, 0.5):
        signal = torch.zeros(1, 5003)
        signal[0, round(click * 8000)] = 1.0
        frames, _ = filterbank(signal, torch.tensor([5003]))
        loudest = float(frames[0].sum(dim=1).argmax())
        assert abs(filterbank.config.seconds_of(loudest) - click) <= 0.005 + 1 / 8000
    assert filterbank.config.seconds_of(0.0) == pytest.approx(0.0125 if snip_edges else 0.005)
    between = filterbank.config.seconds_of(7.5) - filterbank.config.seconds_of(5.0)
    assert between == pytest.approx(0.025)


@pytest.mark.parametrize("samples", [(9001, 4003), (401, 9001)])
def test_mean_and_variance_are_those_of_the_utterance(samples: tuple[int, ...]) -> None:
    sounds = [sound(count, 16000) for count in samples]
    plain = rows_of(FilterbankConfig().build(), sounds)
    centered = rows_of(FilterbankConfig(normalize="mean").build(), sounds)
    scaled = rows_of(FilterbankConfig(normalize="mean_and_variance").build(), sounds)
    for before, mean, both in zip(plain, centered, scaled, strict=True):
        expected = before.astype(np.float64) - before.mean(axis=0, dtype=np.float64)
        np.testing.assert_allclose(mean, expected, atol=1e-4)
        deviation = before.std(axis=0, dtype=np.float64)
        # A single frame has no deviation.
        expected = expected / np.where(deviation > 0, deviation, 1)
        np.testing.assert_allclose(both, expected, atol=1e-3)


def test_level_removes_loudness_and_preserves_the_shape_of_the_spectrum() -> None:
    loud = 0.5 * sound(9001, 16000)
    soft = 0.01 * loud
    plain = rows_of(FilterbankConfig(floor=1e-30).build(), [loud])[0].astype(np.float64)
    levelled = rows_of(FilterbankConfig(floor=1e-30, normalize="level").build(), [loud, soft])
    above = np.maximum(plain - np.log(np.exp(plain).mean()), -9)
    assert (above == -9).any() and (above > 0).any(), "both cases occur"
    for frames in levelled:
        np.testing.assert_allclose(3 * (frames - 1), above, atol=1e-3)


def test_silence_is_not_amplified() -> None:
    filterbank = FilterbankConfig(normalize="mean_and_variance").build()
    noise = 1e-7 * torch.randn(1, 16001, generator=torch.Generator().manual_seed(0))
    frames, _ = filterbank(noise, torch.tensor([16001]))
    assert frames.abs().max() < 0.01


def test_round_trip_of_configs() -> None:
    for config in (TINY, FilterbankConfig(), FilterbankConfig(high_freq=3700.0, window="hamming")):
        assert loads(FilterbankConfig, dumps(config), base=Path()) == config


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("hop_ms = 26", "400 and 416 samples"),
        ("hop_ms = 0.01", "400 and 0 samples"),
        ("window_ms = 0.1", "1 and 160 samples"),
        ("sample_rate = 8000\nhigh_freq = 4001", "half of sample_rate .4000 Hz., got 4001 Hz"),
        ("low_freq = 300\nhigh_freq = 300", "low_freq .300 Hz."),
        ("mel_bins = 0", "at least 1"),
    ],
)
def test_impossible_configs_are_refused(wrong: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        loads(FilterbankConfig, wrong, base=Path())
