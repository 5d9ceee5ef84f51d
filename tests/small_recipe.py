"""Settings that make any recipe small, so that it trains in a second."""

SMALL = (
    "model.layers=2",
    "model.width=24",
    "model.max_length=96",
    "model.attention.heads=2",
    "training.pretrain.steps=6",
    "training.pretrain.batch_tokens=512",
    "training.pretrain.question_ratio=0.2",
    "training.finetune.steps=5",
    "training.finetune.batch_tokens=256",
)
"""For the task `answer`."""

SMALL_OF = {
    "answer": SMALL,
    "classify": ("training.labels.steps=3", "training.labels.batch_size=8"),
    "tag": ("training.tags.steps=4", "training.tags.batch_tokens=256"),
    "fill": ("training.steps=4", "training.batch_tokens=256"),
    "lm": ("training.steps=3", "training.batch_tokens=512", "search.max_tokens=20"),
    "caption": (
        "model.width=16",
        "model.frontend.channels=[4,5,6]",
        "model.decoder={kind='rnn',width=16,hidden=16}",
        "training.captions.steps=3",
        "training.captions.batch_captions=8",
    ),
    "transcribe": (
        "model.width=16",
        "model.frontend.channels=4",
        "model.encoder.layers=1",
        "training.speech.steps=3",
        "training.speech.batch_frames=800",
    ),
    "translate": ("training.pairs.steps=3", "training.pairs.batch_tokens=512"),
}
