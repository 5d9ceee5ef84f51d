"""Features of Whisper compared with `transformers`."""

from pathlib import Path

import numpy as np
import pytest
import torch

from harken.config import dumps, loads
from harken.encode.filterbank import frames_of
from harken.encode.whisper_filterbank import WhisperFilterbankConfig
from harken.layers.frontends import extend_with_silence

RATE = 16_000


@pytest.mark.parametrize("bins", [80, 128])
def test_features_equal_those_of_transformers(bins: int) -> None:
    transformers = pytest.importorskip("transformers")
    extract = transformers.WhisperFeatureExtractor(feature_size=bins)
    random = np.random.default_rng(0)
    # A loud sound without pauses, a click, a tone before silence, and one of almost 30 s.
    tone = 0.3 * np.sin(np.arange(RATE) / 7) * (np.arange(RATE) < 5003)
    levels = ((0.1, 16001), (0.3, 137), (1e-3, 45013), (1.0, 479_801))
    signals = [tone, *(level * random.standard_normal(count) for level, count in levels)]
    signals = [signal.astype(np.float32) for signal in signals]
    config = WhisperFilterbankConfig(mel_bins=bins)
    for signal, frames in zip(signals, frames_of(signals, config), strict=True):
        assert len(frames) == min((len(signal) + 359) // 160 + 1, 3000)
        present = torch.ones(1, len(frames), dtype=torch.bool)
        extended, extended_present = extend_with_silence(frames[None], present, 3000)
        expected = extract(signal, sampling_rate=RATE, return_tensors="pt").input_features
        torch.testing.assert_close(extended.transpose(1, 2), expected, rtol=0, atol=1e-5)
        assert extended_present.all()


def test_a_long_sound_has_a_frame_every_10_ms() -> None:
    signal = np.random.default_rng(0).standard_normal(31 * RATE + 77).astype(np.float32)
    config = WhisperFilterbankConfig(mel_bins=7)
    (whole,) = frames_of([signal], config)
    (first,) = frames_of([signal[: 3 * RATE]], config)
    assert whole.shape == (3100, 7)
    assert config.seconds_of(250) == 2.5
    # Equal before the end of the shorter sound, up to the limit of the range below the maximum.
    torch.testing.assert_close(whole[:298], first[:298], rtol=0, atol=1e-5)


def test_the_config_loads_from_toml() -> None:
    config = WhisperFilterbankConfig(mel_bins=41)
    assert loads(WhisperFilterbankConfig, dumps(config), base=Path()) == config
