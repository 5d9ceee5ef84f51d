"""Commands that inspect a model: inspect, heads, ablate, patch, align."""

from pathlib import Path

from harken.cli.arguments import Parser, at_least

RUN_OR_FOLDER = "Run folder, or Hugging Face folder"
NAMES = """L1.H3 is head 3 of layer 1, both counted from 1; encoder., decoder. and cross. name the
attention where a model has several."""


def inspect_options(parser: Parser) -> None:
    """Show the attention of a model for your inputs."""
    add = parser.add_argument
    parser.add_run_folder(RUN_OR_FOLDER)
    add("inputs", nargs="*", default=[], metavar="INPUT", help="Texts, audio files or images")
    add("--file", type=Path, metavar="FILE", help="File with one input per line")
    add("--out", type=Path, default=Path(), metavar="DIR", help="Folder of the pages and figures")
    add("--layers", default="", metavar="LAYER,…", help="Layers to show, such as 1,3 or cross.L2")
    add("--heads", default="", metavar="HEAD,…", help="Heads to show, such as 2 or L1.H3")
    add("--save", action="store_true", help="Also save the tensors of these layers, for scripts")
    parser.add_device_and_json()
    parser.epilog = f"""input:
  A text in quotes, as for `harken predict`; audio files for a speech recognizer; images or rows of
  an array for a captioner. A Hugging Face folder (BERT, GPT-2 or Llama: config.json,
  model.safetensors, tokenizer.json) takes texts.

layers and heads:
{NAMES}
A number alone selects this layer or head in every attention.

output:
  For each input one HTML page with all layers and heads, and a PNG and an SVG of each view. The
  paths are printed, one per line. --json prints the key with the most weight for each query of each
  head: "argmax_keys" counts keys from 0. Decoder rows are named by the token that they predict.
  --save adds a folder of safetensors and an index.json: weights, queries, keys and values of every
  head, read by `harken.open_recording`. Its "tokens" name the queries and keys of each view.

examples:
  harken inspect runs/translate "A dog runs." "Two men talk." --out pages
  harken inspect runs/demo --file questions.txt --layers 1,3 --heads 2 --out pages
  harken inspect runs/captions beach.jpg test.npz#7 --out pages
  harken inspect models/bert-base-uncased "The bank of the river." --json
"""


def heads_options(parser: Parser) -> None:
    """Describe what every head attends to, from its weights and on inputs."""
    add = parser.add_argument
    parser.add_run_folder(RUN_OR_FOLDER)
    add("--inputs", type=at_least(1), default=50, metavar="N", help="Number of inputs")
    add("--text", type=Path, metavar="FILE", help="Your own inputs, one per line")
    add("--length", type=at_least(8), metavar="N", help="Sequence length to analyze the weights")
    add("--out", type=Path, metavar="DIR", help="Folder for heads.svg and heads.png")
    add("--seed", type=int, default=0, metavar="N", help="Seed of the random tokens")
    parser.add_device_and_json()
    parser.epilog = f"""{NAMES}

columns, from the weights:
  offset     T, the number of steps back with the highest score for random tokens (negative: ahead);
             any, if the score varies by less than one nat over all offsets
  band       number of offsets around T that lose at most one nat
  position   share of the variance of the score that depends on positions only
  content    share that depends on the key's token; the rest depends on the query's token
  copies     eigenvalues of W_OV: 1 writes the token that it reads, -1 its opposite
and measured on the inputs, as means over their tokens:
  offset     with the most weight, and the mean of this weight
  before, itself, after, first    weight on these tokens
  entropy    in nats
  induction  weight on the token after an earlier copy, in repeated random tokens

Figures from the weights are exact in the first layer; above (~) they ignore earlier layers.

examples:
  harken heads runs/tagger --inputs 200 --out pictures
  harken heads models/bert --text sentences.txt --json
"""


def ablate_options(parser: Parser) -> None:
    """Remove each head, layer or position encoding in turn and measure the effect."""
    add = parser.add_argument
    parser.add_run_folder()
    parts, methods = ("heads", "layers", "positions"), ("zero", "mean", "resample")
    add("--what", choices=parts, default="heads", help="Parts to remove")
    add("--how", choices=methods, default="zero", help="Replacement of the part, see below")
    add("--examples", type=at_least(1), default=100, metavar="N", help="Number of examples")
    add("--seed", type=at_least(0), default=0, metavar="N", help="Seed of --how resample")
    parser.add_data_options()
    parser.add_device_and_json()
    parser.epilog = f"""the output of a part is replaced by:
  zero       zeros
  mean       its mean over the same examples
  resample   its output for another example of the same batch

--what layers also removes the attention and the feed-forward layer of each layer alone.

The metric of the task is compared with and without the part on the same examples, with the
difference, its 95 % interval and p. Nothing is trained again, and search is greedy. Parts are
sorted by their effect, the largest first. p is not corrected for the number of parts.

{NAMES}

examples:
  harken ablate runs/translate --what layers --examples 50
  harken ablate runs/gpt --how mean --json
"""


def patch_options(parser: Parser) -> None:
    """Find the heads or layers that carry the difference between two texts."""
    add = parser.add_argument
    parser.add_run_folder(RUN_OR_FOLDER)
    add("clean", metavar="CLEAN", help="Text with the prediction to restore")
    add("corrupted", metavar="CORRUPTED", help="Text with the same number of tokens")
    add("--what", choices=("heads", "layers"), default="heads", help="Parts to patch")
    parser.add_device_and_json()
    parser.epilog = """The model reads the corrupted text once for each part, with the output of
this part copied from the clean text (activation patching). Parts that restore most are first.

restored:
  100 %  the part alone restores the clean prediction; 0 %: it changes nothing; below 0 %: it moves
  the prediction away from the clean one. Shares need not sum to 100 %.

The prediction is the next token after the text (after the question, for the task answer). It is
measured as the logit difference between the most probable tokens after both texts, or, if these are
the same, as the log-probability of this token.

Works with runs of GPT models (tasks lm and answer) and with Hugging Face folders (gpt2, llama).

examples:
  harken patch runs/gpt "the king of France" "the king of Sweden"
  harken patch models/gpt2 "Ann gave Bob a book. Bob" "Ann gave Tom a book. Bob" --what layers
"""


def align_options(parser: Parser) -> None:
    """Measure the word alignment of every cross-attention head of a translation model."""
    add, path = parser.add_argument, Path
    parser.add_run_folder("Run folder of the task translate")
    add("--source", type=path, required=True, metavar="FILE", help="Source sentences")
    add("--target", type=path, required=True, metavar="FILE", help="Translations of --source")
    text = "Gold links: 3-4 sure, 3p4 possible"
    add("--links", type=path, required=True, metavar="FILE", help=text)
    sides = ("source", "target")
    add("--first", choices=sides, default="source", help="Side of the first number of a link")
    methods = ("argmax", "intersection", "union", "grow-diag-final", "threshold")
    add("--how", choices=methods, default="argmax", help="Method that links words, see below")
    add("--min-weight", type=float, default=0.2, metavar="X", help="Minimum weight for threshold")
    text = "Decoder step of a word: the one that predicts it, or the next, which reads it"
    add("--step", choices=("predicting", "reading"), default="predicting", help=text)
    parser.add_device_and_json()
    parser.epilog = """The model reads the given translations (teacher forcing). The attention of
each head is compared with gold links (alignment error rate, Och and Ney).

linked words:
  argmax            each target word and the source word with the most weight
  intersection      those where the target word also has the most weight for the source word
  union             those of either direction
  grow-diag-final   both directions, symmetrized as by Moses' symal
  threshold         all with a weight of at least --min-weight

Words are separated by spaces; weights are summed over the tokens of a source word and averaged over
those of a target word. The best head is chosen on these pairs; `chosen elsewhere` is a head chosen
on one half of the pairs and measured on the other.

examples:
  harken align runs/translate --source test.en --target test.de --links test.talp --first target
"""
