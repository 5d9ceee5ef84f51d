"""Captions of seven images with references, and their scores by coco-caption.

BLEU and CIDEr-D were computed by pycocoevalcap 1.2 with Stanford's tokenizer, CIDEr by its scorer
without clipping and length penalty, as in github.com/vrama91/cider.
"""

IMAGES: list[tuple[str, list[str]]] = [
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
# Corpus values times 100.
POINTS = {
    "bleu_1": 84.31372548854287,
    "bleu_2": 78.63209609115783,
    "bleu_3": 69.30822837509189,
    "bleu_4": 62.37103172679534,
    "cider_d": 211.8250023525892,
    "cider": 261.3582828312045,
}
