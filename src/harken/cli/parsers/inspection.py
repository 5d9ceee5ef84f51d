"""Commands that inspect a model: inspect, heads, ablate, patch, align."""

from pathlib import Path

from harken.cli.arguments import Parser, at_least

RUN_OR_FOLDER = "Run folder, or Hugging Face folder"
NAMES = """  L1.H3 is head 3 of layer 1, both counted from 1. In a model with several stacks, names
  have a prefix: encoder., decoder. (decoder self-attention) or cross. (cross-attention)."""


def inspect_options(parser: Parser) -> None:
    """Show the attention of a model for your inputs."""
    add = parser.add_argument
    parser.add_run_folder(RUN_OR_FOLDER)
    add("inputs", nargs="*", default=[], metavar="INPUT", help="Texts, audio files or images")
    add("--file", type=Path, metavar="FILE", help="File with one input per line")
    add("--out", type=Path, default=Path(), metavar="DIR", help="Folder of the pages and figures")
    add("--layers", default="", metavar="LAYER,…", help="Layers to show, such as 1,3 or cross.L2")
    add("--heads", default="", metavar="HEAD,…", help="Heads to show, such as 2 or L1.H3")
    add("--save", action="store_true", help="Also save the attention as safetensors")
    parser.add_device_and_json()
    parser.epilog = f"""input:
  Texts in quotes; audio files for a speech recognizer or a classifier of sounds; images or rows of
  an array for a captioner or a classifier of images.
  A Hugging Face folder (BERT, GPT-2, GPT-NeoX or Llama, with config.json, model.safetensors and
  tokenizer.json) takes texts.

layers and heads:
{NAMES}
  A plain number selects this layer or head in every stack.

output:
  For each input one HTML page with the selected layers and heads, and a PNG and an SVG of each view
  (encoder, decoder or cross-attention). The paths are printed, one per line. Decoder rows are
  labeled by the token that they predict. --json prints the key with the largest weight for each
  query and head ("argmax_keys", counted from 0). --save adds a folder with weights, queries,
  keys and values of every head of the selected layers, which `harken.open_recording` reads. In the
  recording, `tokens` are the labels of the queries and keys of each view.

examples:
  harken inspect runs/translate "A dog runs." "Two men talk." --out pages
  harken inspect runs/demo --file questions.txt --layers 1,3 --heads 2 --out pages
  harken inspect runs/captions beach.jpg test.npz#7 --out pages
  harken inspect models/bert-base-uncased "The bank of the river." --json
"""


def heads_options(parser: Parser) -> None:
    """Analyze what every head attends to, from its weights and on inputs."""
    add = parser.add_argument
    parser.add_run_folder(RUN_OR_FOLDER)
    add("--inputs", type=at_least(1), default=50, metavar="N", help="Number of inputs")
    add("--text", type=Path, metavar="FILE", help="Your own inputs, one per line")
    add("--length", type=at_least(8), metavar="N", help="Sequence length for the weight analysis")
    add("--out", type=Path, metavar="DIR", help="Folder for heads.svg and heads.png")
    add("--seed", type=int, default=0, metavar="N", help="Seed of the random tokens")
    parser.add_device_and_json()
    parser.epilog = f"""heads:
{NAMES}

columns computed from the weights:
  offset     number of tokens back with the highest score for random tokens (negative: ahead);
             `any` (band: `all`) if the score varies by less than one nat over all offsets
  band       number of offsets around this one whose score is at most one nat lower
  position   share of the variance of the score that depends on positions only
  content    share that depends on the key's token; the rest depends on the positions and the
             query's token together
  copies     from the eigenvalues of W_OV: 1 if the head copies the token that it attends to,
             -1 if it writes the opposite

columns measured on the inputs, as means over their tokens:
  offset     number of tokens back with the largest weight
  weight     mean weight at this offset
  before, itself, after, first    weight on the previous, current, next and first token
  entropy    entropy of the weights in nats
  induction  weight on the token after an earlier copy of the query's token; measured on repeated
             random tokens, not on the inputs

Columns from the weights are exact in the first layer. In later layers (marked ~) they ignore the
outputs of earlier layers.

examples:
  harken heads runs/tagger --inputs 200 --out pictures
  harken heads models/bert --text sentences.txt --json
"""


def ablate_options(parser: Parser) -> None:
    """Remove each head, layer or position encoding in turn and measure the effect."""
    add = parser.add_argument
    parser.add_run_folder()
    parts, methods = ("heads", "layers", "positions"), ("zero", "mean", "resample")
    add("--parts", choices=parts, default="heads", help="Parts to remove")
    add("--method", choices=methods, default="zero", help="Ablation method, see below")
    add("--examples", type=at_least(1), default=100, metavar="N", help="Number of examples")
    add("--seed", type=at_least(0), default=0, metavar="N", help="Seed of --method resample")
    parser.add_data_options()
    parser.add_device_and_json()
    parser.epilog = f"""methods, by what replaces the output of a part:
  zero       zeros
  mean       its mean over the same examples
  resample   its output for another example of the same batch

--parts layers removes each layer, and also its attention and its feed-forward layer separately.

The command evaluates the metric of the task with and without each part on the same examples, and
prints the difference with its 95 % interval and p value. The model is not trained again, and search
is greedy. Parts are sorted by effect, the largest first. p values are not corrected for the number
of parts.

heads:
{NAMES}

examples:
  harken ablate runs/translate --parts layers --examples 50
  harken ablate runs/gpt --method mean --json
"""


def patch_options(parser: Parser) -> None:
    """Find the heads or layers that cause different predictions for two texts."""
    add = parser.add_argument
    parser.add_run_folder(RUN_OR_FOLDER)
    add("clean", metavar="CLEAN", help="Text with the prediction to restore")
    add("corrupted", metavar="CORRUPTED", help="Text with the same number of tokens")
    add("--parts", choices=("heads", "layers"), default="heads", help="Parts to patch")
    parser.add_device_and_json()
    parser.epilog = """Activation patching: the model reads the corrupted text once for each part,
with the output of this part copied from the run on the clean text. Parts that restore most are
listed first.

restored:
  100 % if the part alone restores the clean prediction, 0 % if it changes nothing, below 0 % if it
  moves the prediction away from the clean one. The shares need not sum to 100 %.

The prediction is the next token after the text (after the question, for the task answer). The
metric is the difference between the logits of the most probable token after the clean text and
after the corrupted text, or, if these tokens are the same, the log-probability of this token.

Works with runs of GPT models (tasks lm and answer) and with Hugging Face folders (gpt2, gpt_neox
and llama).

examples:
  harken patch runs/gpt "the king of France" "the king of Sweden"
  harken patch models/gpt2 "Ann gave Bob a book. Bob" "Ann gave Tom a book. Bob" --parts layers
"""


def align_options(parser: Parser) -> None:
    """Measure the word alignment of every cross-attention head of a translation model."""
    add, path = parser.add_argument, Path
    parser.add_run_folder("Run folder of the task translate")
    add("--source", type=path, required=True, metavar="FILE", help="Source sentences")
    add("--target", type=path, required=True, metavar="FILE", help="Translations of --source")
    text = "Gold links, a line per pair: 3-4 is sure, 3p4 possible; words count from 1"
    add("--links", type=path, required=True, metavar="FILE", help=text)
    sides = ("source", "target")
    add("--first", choices=sides, default="source", help="Side of the first number of a link")
    methods = ("argmax", "intersection", "union", "grow-diag-final", "threshold")
    add("--method", choices=methods, default="argmax", help="Method that links words, see below")
    add("--min-weight", type=float, default=0.2, metavar="X", help="Minimum weight for threshold")
    text = "Decoder step whose attention belongs to a word: the step that predicts it, or the one "
    text += "after, whose input it is"
    add("--step", choices=("predicting", "reading"), default="predicting", help=text)
    parser.add_device_and_json()
    parser.epilog = """The model reads the given translations (teacher forcing). The attention of
each head is compared with gold links (alignment error rate, Och and Ney).

methods:
  argmax            link each target word to the source word with the largest weight
  intersection      keep a link only if no other target word has a larger weight for its source word
  union             add the links from each source word to the target word with the largest weight
  grow-diag-final   symmetrize both directions as Moses' symal does
  threshold         link all pairs with a weight of at least --min-weight

Words are separated by spaces. Weights are summed over the tokens of a source word and averaged over
the tokens of a target word. The best head is chosen and measured on the same pairs; `best head,
cross-validated` is chosen on each half of the pairs and measured on the other half.

examples:
  harken align runs/translate --source test.en --target test.de --links test.talp --first target
"""
