"""Settings that make any recipe of `answer` small."""

SMALL = (
    "model.layers=2",
    "model.width=24",
    "model.length=96",
    "model.attention.heads=2",
    "training.pretrain.steps=6",
    "training.pretrain.batch_tokens=512",
    "training.pretrain.questions=0.2",
    "training.finetune.steps=5",
    "training.finetune.batch_tokens=256",
)
"""A model that trains in a second and knows nothing."""
