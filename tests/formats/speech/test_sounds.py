"""A stretch of a file by its name, the same as by its utterance."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.sound import Sounds, name_of, signal_of
from harken.synthetic.recordings import write_wav

RATE = 8000


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "talk.wav"
    write_wav(path, np.linspace(-0.9, 0.9, 2 * RATE, dtype=np.float32), RATE)
    return path


@pytest.mark.parametrize(("start", "end"), [(0.0, None), (0.25, None), (0.0, 1.5), (0.1, 0.7)])
def test_a_name_reads_what_its_utterance_is(
    recording: Path, start: float, end: float | None
) -> None:
    one = Utterance(audio=recording, text="so", start=start, end=end)
    signal = signal_of(name_of(one), RATE, 10.0)
    np.testing.assert_array_equal(signal, Sounds([one], RATE, 10.0)[0])
    assert len(signal) == round(((2.0 if end is None else end) - start) * RATE)


def test_only_a_stretch_has_times_in_its_name(recording: Path) -> None:
    assert name_of(Utterance(audio=recording, text="so")) == str(recording)
    assert name_of(Utterance(audio=recording, text="so", end=1.5)) == f"{recording}#t=0.0,1.5"


def test_a_file_that_is_named_like_a_stretch_is_itself(recording: Path) -> None:
    odd = recording.rename(recording.with_name("talk.wav#t=1"))
    assert len(signal_of(str(odd), RATE, 10.0)) == 2 * RATE


@pytest.mark.parametrize("stretch", ["#t=3,4", "#t=1,0.5"])
def test_a_stretch_that_is_not_there_is_refused(recording: Path, stretch: str) -> None:
    with pytest.raises(UserError, match="found the stretch from"):
        signal_of(f"{recording}{stretch}", RATE, 10.0)


@pytest.mark.parametrize("stretch", ["#t=-1", "#s=1,2", "#t=1,2,3"])
def test_anything_else_behind_a_name_is_of_the_name(recording: Path, stretch: str) -> None:
    with pytest.raises(UserError):
        signal_of(f"{recording}{stretch}", RATE, 10.0)


@pytest.mark.parametrize("time", ["9" * 20, "0," + "9" * 20, "9" * 400, "9" * 5000, "0,1e5", "-1"])
def test_times_that_no_sound_has_are_refused(tmp_path: Path, time: str) -> None:
    path = tmp_path / "sound.wav"
    soundfile.write(path, np.zeros(800), 8000)
    with pytest.raises(UserError):
        signal_of(f"{path}#t={time}", 8000, 600.0)
