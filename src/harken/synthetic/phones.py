"""The phones of generated speech, and the words that they can say.

A phone is a source (the pulses of a voice, noise, or both) behind three resonances. The numbers are
near those of English speech, for a vocal tract of average length and a telephone's 4 kHz.
"""

from typing import NamedTuple


class Phone(NamedTuple):
    """The steady middle of a sound; neighbors glide into each other."""

    resonances: tuple[float, float, float]  # Hz
    bandwidth: float  # Hz, of each resonance
    voicing: float  # share of the power that comes from the voice, the rest is noise
    level: float  # amplitude, 1 for a vowel
    milliseconds: float


PHONES = {
    "i": Phone((300, 2250, 2950), 100, 1.0, 0.9, 100),
    "e": Phone((530, 1850, 2500), 100, 1.0, 1.0, 110),
    "a": Phone((730, 1180, 2450), 100, 1.0, 1.0, 120),
    "o": Phone((480, 880, 2400), 100, 1.0, 1.0, 120),
    "u": Phone((320, 950, 2250), 100, 1.0, 0.9, 110),
    "w": Phone((300, 650, 2200), 120, 1.0, 0.6, 65),
    "r": Phone((400, 1150, 1550), 120, 1.0, 0.7, 65),
    "l": Phone((360, 1050, 2700), 120, 1.0, 0.7, 65),
    "n": Phone((270, 1400, 2300), 200, 1.0, 0.5, 75),
    "v": Phone((300, 1200, 2400), 400, 0.7, 0.35, 65),
    "z": Phone((300, 2900, 3500), 500, 0.5, 0.35, 80),
    "s": Phone((2800, 3300, 3700), 700, 0.0, 0.35, 100),
    "f": Phone((1300, 2300, 3400), 1500, 0.0, 0.2, 90),
    "th": Phone((1500, 2700, 3600), 1500, 0.0, 0.15, 80),
    "t": Phone((2300, 3000, 3600), 900, 0.0, 0.4, 45),
    "k": Phone((1500, 1900, 2400), 500, 0.0, 0.4, 50),
    "p": Phone((500, 1000, 1800), 800, 0.0, 0.35, 40),
    "d": Phone((300, 1800, 2800), 500, 0.5, 0.4, 45),
    "g": Phone((300, 1600, 2100), 400, 0.5, 0.4, 50),
}

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

PRONUNCIATIONS = {
    word: tuple(phones.split())
    for word, phones in {
        "zero": "z i r o",
        "one": "w a n",
        "two": "t u",
        "three": "th r i",
        "four": "f o r",
        "five": "f a i v",
        "six": "s i k s",
        "seven": "s e v n",
        "eight": "e i t",
        "nine": "n a i n",
        "yes": "i e s",
        "no": "n o",
        "up": "a p",
        "down": "d a u n",
        "left": "l e f t",
        "right": "r a i t",
        "on": "o n",
        "off": "o f",
        "stop": "s t o p",
        "go": "g o",
    }.items()
}
