"""Captions of seven pictures with their references, and what the authors' programs make of them.

BLEU and CIDEr-D are of pycocoevalcap 1.2, which cuts words by Stanford's tokenizer, in Java, and is
a package of 100 MB: its figures stand here so that the tests need neither. CIDEr is of its scorer
without the clipping and the lengths, as in github.com/vrama91/cider.
"""

from harken.measure.captions import Cider

PICTURES: list[tuple[str, list[str]]] = [
    (
        "A brown dog runs through the snow.",
        [
            "A brown dog is running through deep snow.",
            "The dog runs in the snow .",
            "A dog, running; snow everywhere!",
        ],
    ),
    ("Two men are sitting on a bench", ["Two men sit on a wooden bench in the park."]),
    (
        "a woman's hat isn't red",
        [
            "The woman's hat isn't red.",
            "A woman isn't wearing her red hat.",
            "A woman (in black) can't find the hat",
            "A black-and-white hat",
            "She's got no hat",
        ],
    ),
    ("", ["A cat sleeps.", "A cat"]),
    (
        "A man a man a man a man rides a bicycle down the street",
        ["A man rides a bicycle down the street.", "The man is on a bicycle."],
    ),
    (
        "A child cannot reach the ball",
        [
            "A child can't reach the ball.",
            "The child cannot reach 1,000 balls at 10:30.",
            "a child & a ball",
        ],
    ),
    (
        "Two dogs play in the grass near the water.",
        [
            "Two dogs play in the grass near the water.",
            "Dogs play",
            "Two brown dogs are playing near the lake -- or in it...",
            '"Two dogs"',
        ],
    ),
]
# Of each picture.
CIDER = [
    Cider(plain=2.3875371246223963, d=2.3386280577435335),
    Cider(plain=1.875454529284361, d=1.655082813031699),
    Cider(plain=2.854696398833366, d=2.7475089119204074),
    Cider(plain=0.0, d=0.0),
    Cider(plain=4.0899877812349865, d=1.6933263268837385),
    Cider(plain=3.1178528193110714, d=3.0129890308936467),
    Cider(plain=3.969551144898136, d=3.380215024208222),
]
# Of all together, a hundred times.
POINTS = {
    "bleu_1": 84.31372548854287,
    "bleu_2": 78.63209609115783,
    "bleu_3": 69.30822837509189,
    "bleu_4": 62.37103172679534,
    "cider_d": 211.8250023525892,
    "cider": 261.3582828312045,
}
