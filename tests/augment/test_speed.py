import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.augment.waveform import change_speed

RATE = 16000


def pitch(signal: np.ndarray) -> float:
    """Return the loudest frequency in Hz, interpolated by a parabola."""
    spectrum = np.log(np.abs(np.fft.rfft(signal * np.hanning(len(signal)))))
    peak = int(spectrum.argmax())
    left, middle, right = spectrum[peak - 1 : peak + 2]
    return (peak + 0.5 * (left - right) / (left - 2 * middle + right)) * RATE / len(signal)


@pytest.mark.parametrize("factor", [0.9, 1.1, 0.5, 1.37])
def test_pitch_changes_by_the_factor(factor: float) -> None:
    at = np.arange(RATE) / RATE
    tone = (0.5 * np.sin(2 * np.pi * 443 * at)).astype(np.float32)
    changed = change_speed(tone, RATE, factor)
    assert changed.dtype == np.float32
    assert pitch(tone) == pytest.approx(443, abs=0.05)
    assert pitch(changed) == pytest.approx(443 * factor, rel=2e-4)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_times_change_by_the_factor(factor: float) -> None:
    """The result is s(factor * t), with the same amplitude."""
    at = np.arange(8009) / RATE

    def click(time: np.ndarray) -> np.ndarray:
        return np.exp(-(((time - 0.21) / 0.002) ** 2)).astype(np.float32)

    changed = change_speed(click(at), RATE, factor)
    expected = click(factor * np.arange(len(changed)) / RATE)
    np.testing.assert_allclose(changed, expected, atol=1e-3)


def test_no_aliasing() -> None:
    tone = np.sin(2 * np.pi * 7900 * np.arange(RATE) / RATE).astype(np.float32)
    faster = change_speed(tone, RATE, 1.1)  # 8690 Hz is above half the rate
    assert np.abs(faster[100:-100]).max() < 1e-3


@given(st.integers(0, 5000), st.sampled_from([0.5, 0.9, 0.97, 1.0, 1.1, 2.0]))
def test_length_changes_by_the_factor(samples: int, factor: float) -> None:
    signal = np.random.default_rng(samples).normal(size=samples).astype(np.float32)
    changed = change_speed(signal, RATE, factor)
    assert abs(len(changed) - samples / factor) <= 1
    assert np.array_equal(changed, change_speed(signal, RATE, factor))
    if factor == 1:
        assert np.array_equal(changed, signal)
