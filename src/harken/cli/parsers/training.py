"""Commands that train and evaluate.

demo, new, train, evaluate, compare, predict, export, report, runs
"""

from pathlib import Path

from harken.cli.arguments import DEVICES, Parser, at_least, fraction

# As in `export/format.py` and `recipe.TASKS`, whose modules import PyTorch.
FORMATS = ("hf", "onnx", "ctranslate2")
PRECISIONS = ("float32", "float16", "int8")
TASK_NAMES = ("answer", "classify", "tag", "fill", "lm", "translate", "transcribe", "caption")


def demo_options(parser: Parser) -> None:
    """Train and evaluate a question answering model on generated data, and write the report."""
    add, folder = parser.add_argument, Path("runs/demo")
    add(
        "task",
        nargs="?",
        default="answer",
        choices=["answer"],
        metavar="TASK",
        help="Task; only answer has a demo",
    )
    add("--run", type=Path, default=folder, metavar="DIR", dest="folder", help="Run folder")
    add("--seed", type=at_least(0), default=0, metavar="N", help="Seed of the data and the model")
    parser.add_json()
    parser.epilog = """The model is pretrained on generated biographies, finetuned on questions
about the birthplaces of some people, and tested on questions about the others. If the models
are trained already, the command only evaluates them.

examples:
  harken demo --run runs/other --seed 1
"""


def new_options(parser: Parser) -> None:
    """Check your files and write a recipe for them."""
    add = parser.add_argument
    tasks = f"{', '.join(TASK_NAMES[:-1])} or {TASK_NAMES[-1]}"
    add("task", choices=TASK_NAMES, metavar="TASK", help=f"Task: {tasks}")
    text = "Data files; for classify also folders with a subfolder per label"
    add("files", nargs="*", default=[], type=Path, metavar="FILE", help=text)
    path = Path("recipe.toml")
    add("--out", type=Path, default=path, metavar="RECIPE.toml", help="Recipe to write")
    add("--dev", type=fraction, metavar="SHARE", help="Share of the examples held out as dev set")
    text = "Column of a table, such as data.columns.text=review (repeatable)"
    add(
        "--set",
        action="append",
        default=[],
        metavar="data.columns.FIELD=NAME",
        dest="sets",
        help=text,
    )
    parser.epilog = """Without files, the command prints which files the task needs. Paths in the
recipe are relative to it. The columns of CSV, TSV, JSON lines and Parquet are guessed by their
names and contents, and printed with five rows; --set names them.

examples:
  harken new answer texts.txt questions.tsv
  harken new classify reviews.csv --set data.columns.label=stars
  harken new tag train.conllu dev.conllu --out recipes/mine.toml
  harken new translate train.en train.de --dev 0.05
  harken new fill reviews.csv --set data.columns.text=review
  harken new transcribe train.jsonl
"""


def train_options(parser: Parser) -> None:
    """Train a model from a recipe, or resume an interrupted run."""
    add = parser.add_argument
    add("recipe", type=Path, metavar="RECIPE.toml", help="Recipe of the run")
    parser.add_overrides()
    text = "Run folder to write (default: runs/NAME for NAME.toml; with --resume and the "
    text += "recipe.toml of a run, this run)"
    add("--run", type=Path, metavar="DIR", dest="folder", help=text)
    add("--seed", type=int, metavar="N", help="Seed of the run (default: that of the recipe)")
    text = "Train N runs with consecutive seeds, each in a folder DIR/seed-SEED"
    add("--seeds", type=at_least(2), metavar="N", help=text)
    add("--device", choices=DEVICES, help="Device to train on (default: that of the recipe)")
    add("--resume", action="store_true", help="Continue an interrupted run")
    parser.add_json()
    parser.epilog = """examples:
  harken train recipe.toml
  harken train recipe.toml --set model.width=128 --set training.pretrain.steps=500 --run runs/small
  harken train runs/small/recipe.toml --resume
  harken train recipe.toml --seeds 3 --run runs/three
"""


def evaluate_options(parser: Parser) -> None:
    """Compute the metrics of a run on a split of its recipe or on other files."""
    parser.add_run_folder()
    parser.add_data_options()
    parser.add_search_options(("beam", "mode", "ctc_weight"))
    add, text = parser.add_argument, "Also evaluate on degraded audio, see below (repeatable)"
    add("--condition", action="append", default=[], metavar="KIND:AMOUNT", help=text)
    parser.add_engine()
    parser.add_device_and_json()
    parser.epilog = """conditions (speech recognizers only), each applied separately:
  quiet:DB lowers the level; noise:DB, pink:DB, babble:DB and talker:DB add a signal at this SNR;
  reverb:SECONDS simulates a room; references:SHARE replaces this share of the reference words

examples:
  harken evaluate runs/demo --split test --beam 8 --json
  harken evaluate runs/demo --data more-questions.tsv
  harken evaluate runs/translate --source test.en --target test.de
  harken evaluate runs/speech --condition noise:10 --condition reverb:0.4 --condition talker:5
"""


def compare_options(parser: Parser) -> None:
    """Evaluate runs on the same examples and test their differences for significance."""
    add = parser.add_argument
    text = "Run folders, or folders of seeds (`train --seeds`), two or more"
    add("folders", nargs="+", type=Path, metavar="RUN", help=text)
    parser.add_data_options()
    parser.add_search_options(("beam", "mode", "ctc_weight"))
    add("--rows", metavar="KEY", help="Print a table with a row per value of this recipe key")
    add("--columns", metavar="KEY", help="Recipe key of the columns (together with --rows)")
    add(
        "--metric",
        metavar="NAME",
        help="Metric in the table of --rows (default: the first of the task)",
    )
    add("--out", type=Path, metavar="FILE.html", help="Also write the comparison as a page")
    parser.add_device_and_json()
    parser.epilog = """Each run is compared with the first one. A folder of seeds is one group: its
metrics are means over its seeds, and its intervals and p values are over seeds and examples. With
more than two runs, the p values of each metric are corrected for multiple comparisons (Holm).

With --rows and --columns, each run is evaluated on its own split (unless --data or --source and
--target are given), without significance tests. For a key of [data], the table shows the name of
the folder of the file.

examples:
  harken compare runs/plain runs/rotary runs/synthesizer --split test --json
  harken compare runs/rnn runs/transformer --source test.en --target test.de --out page.html
  harken compare runs/plain-seeds runs/rotary-seeds --split test
  harken compare runs/*/ --rows data.train --columns model.encoder.kind --split test
"""


def predict_options(parser: Parser) -> None:
    """Predict outputs for lines of text, audio files or images."""
    add = parser.add_argument
    parser.add_run_folder()
    add("files", nargs="*", default=[], metavar="FILE", help="Input files (default: -, stdin)")
    add("--confidence", action="store_true", help="Append a tab and the confidence")
    add("--nbest", type=int, metavar="N", help="Number of hypotheses per input")
    text = "Print ? instead of uncertain outputs, so that at most RATE of the others are wrong"
    add("--max-error", type=fraction, metavar="RATE", help=text)
    add("--times", action="store_true", help="Print start and end of every word (speech only)")
    parser.add_search_options()
    parser.add_engine()
    parser.add_device_and_json()
    parser.epilog = """Lines of stdin are predicted as they arrive, in batches if several are
waiting.

output:
  One line per line of input; a blank line stays blank. With --confidence, a tab and the probability
  of the output follow. With --nbest, each hypothesis is a line of three columns, the best first:
  `number<TAB>log-probability<TAB>output`, where number counts the lines of all files from 1. A
  blank line has no hypothesis.
  With --max-error, `?` replaces an output whose confidence is below a threshold. The threshold is
  chosen on the dev set such that the error rate among answered inputs is at most RATE, with
  probability at least 90 % over the random draw of the dev set. If the dev set cannot support
  this, the command fails. --json contains the replaced output too, with "abstained": true.
  Line ends and tabs inside an output are printed as \\n, \\r and \\t, unless stdout is a terminal;
  --json contains every output unchanged.
  A sample depends only on the seed, the line and its number.
  An input that is too long for the model is truncated. A line on stderr states how much was read,
  and --json adds "truncation": {"kept", "total", "part", "unit"}.

  Speech recognizers and classifiers of sounds read each FILE, or stdin, as audio; talk.wav#t=1.5,3
  is a segment of it. With --times, each word is a line of `file<TAB>start<TAB>end<TAB>word`, in
  seconds.
  Captioners and classifiers of images read each FILE as an image; test.npz#7 is row 7 of an array.
  For files, a line is `file<TAB>output`, and with --nbest `file<TAB>log-probability<TAB>output`.

  An input that cannot be read is reported on stderr, and with --json in its field "error"; the
  other inputs are still predicted. The exit code is then 1, or 2 if no input could be read.

examples:
  echo "Where was … born?" | harken predict runs/demo --confidence
  harken predict runs/demo questions.txt --max-error 0.1
  harken predict runs/demo questions.txt --beam 8 --nbest 3
  harken predict runs/demo questions.txt --engine ctranslate2
  harken predict runs/demo questions.txt --temperature 0.8 --top-p 0.9 --seed 1 --json
  harken predict runs/speech talk.wav call.flac --times
  sox in.mp3 -t wav - | harken predict runs/speech
  harken predict runs/captions beach.jpg test.npz#7
"""


def export_options(parser: Parser) -> None:
    """Write a run as a Hugging Face, ONNX or CTranslate2 folder with equal outputs."""
    add = parser.add_argument
    parser.add_run_folder()
    add("--to", choices=FORMATS, required=True, help="Format: " + ", ".join(FORMATS))
    text = "Folder to write (default: RUN/exports/FORMAT-PRECISION)"
    add("--out", type=Path, metavar="DIR", help=text)
    text = "Precision of the weights: " + ", ".join(PRECISIONS)
    add("--precision", choices=PRECISIONS, default=PRECISIONS[0], help=text)
    parser.add_json()
    parser.epilog = """The export is compared with the run before it is written: the logits, and
the outputs of greedy search and of a beam of 5, on inputs of the dev set. In float32, an export is
refused (exit code 1) if a logit differs by more than 1e-4 or less than 99 % of the outputs are
equal. parity.json in the folder has the figures. A model that a format cannot represent is refused
with the key of the recipe that causes it.

examples:
  harken export runs/mine --to hf --out models/mine
  harken export runs/translate --to ctranslate2 --precision int8
  harken predict runs/translate --engine ctranslate2 sentences.txt
"""


def report_options(parser: Parser) -> None:
    """Write the report of a run as one self-contained HTML page."""
    parser.add_run_folder()
    text = "Page to write (default: report.html of the run)"
    parser.add_argument("--out", type=Path, metavar="FILE", help=text)
    parser.epilog = """examples:
  harken report runs/demo --out page.html
"""


def runs_options(parser: Parser) -> None:
    """List the runs in a folder: task, state, main metric, parameters, size and date."""
    add, folder = parser.add_argument, Path("runs")
    add("folder", nargs="?", type=Path, default=folder, metavar="FOLDER", help="Folder of runs")
    parser.add_json()
    parser.epilog = """states:
  finished      trained and evaluated on the dev split
  training      a process trains it now; the state has the last logged stage and step
  interrupted   `harken train RUN/recipe.toml --resume` continues it
  damaged       a file cannot be read; stderr names it

examples:
  harken runs
  harken runs experiments --json
"""


def serve_options(parser: Parser) -> None:
    """Open runs in the browser: predictions, attention and the effect of heads."""
    add, folder = parser.add_argument, Path("runs")
    text = "Run folders, or folders that contain runs (default: runs)"
    add("paths", nargs="*", type=Path, default=[folder], metavar="PATH", help=text)
    add("--port", type=int, default=8765, metavar="N", help="Port; 0 chooses a free one")
    add("--open", action="store_true", help="Open the page in the browser")
    text = "Address to listen on; another than this machine needs --token"
    add("--host", default="127.0.0.1", metavar="ADDRESS", help=text)
    text = "Secret of the clients, 16 or more letters and digits (default: random)"
    add("--token", metavar="TEXT", help=text)
    parser.epilog = """The command prints a link that contains a token, and runs until Ctrl-C. Only
this machine can connect. The same server answers a JSON API and the OpenAI API; a request needs the
token as `Authorization: Bearer TOKEN`.

Needs `pip install "harken[serve]"`.

examples:
  harken serve runs --open
  harken serve runs/demo runs/speech --port 9000
"""
