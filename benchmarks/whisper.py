"""Compare Whisper in Harken with `transformers`, and measure word error rates by its conventions.

    python benchmarks/whisper.py logits FOLDER RECORDING…
    python benchmarks/whisper.py wer RUN MANIFEST

`logits` prints, for each recording, the largest difference between the logits of Harken and of
`transformers`, each from its own features, for the prompt and a fixed text.

`wer` prints the word error rate as `harken evaluate` does, and again without case and punctuation
and with each digit as a word ("4-6" is "four six"): Whisper writes punctuation and digits, the
references of these data do not. Numbers such as 1928 still differ from "nineteen twenty eight".
"""

import argparse
import time
from pathlib import Path

import torch

from harken.encode.filterbank import frames_of
from harken.encode.whisper_filterbank import WhisperFilterbankConfig
from harken.formats.manifest import read_utterances
from harken.formats.sound import MAX_SECONDS, load_signal
from harken.measure.edit_distance import STRICT, Leniency, transcription_samples
from harken.measure.interval import format_value
from harken.models.huggingface import read_folder
from harken.run import load

TEXT = " one two three"
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
DIGITS = {str(digit): word for digit, word in enumerate(WORDS)}


@torch.inference_mode()
def compare_logits(folder: Path, recordings: list[Path]) -> None:
    from transformers import WhisperForConditionalGeneration, WhisperProcessor

    processor = WhisperProcessor.from_pretrained(folder)
    reference = WhisperForConditionalGeneration.from_pretrained(folder).eval()
    model = read_folder(folder).model.eval()
    processor.tokenizer.set_prefix_tokens(language="en", task="transcribe")
    tokens = torch.tensor([processor.tokenizer(TEXT).input_ids])
    largest = 0.0
    for path in recordings:
        signal = load_signal(str(path), 16_000, MAX_SECONDS)
        inputs = processor.feature_extractor(signal, sampling_rate=16_000, return_tensors="pt")
        expected = reference(**inputs, decoder_input_ids=tokens).logits
        (frames,) = frames_of([signal], WhisperFilterbankConfig(mel_bins=model.features))
        present = torch.ones(1, len(frames), dtype=torch.bool)
        difference = float((model(frames[None], present, tokens)[2] - expected).abs().max())
        largest = max(largest, difference)
        print(f"{path.name}\t{difference:.1e}\t(largest logit {float(expected.abs().max()):.1f})")
    print(f"largest difference of {len(recordings)} recordings\t{largest:.1e}")


def spell_digits(text: str) -> str:
    return "".join(f" {DIGITS[char]} " if char in DIGITS else char for char in text)


def measure_wer(run_folder: Path, manifest: Path) -> None:
    run, utterances = load(run_folder), read_utterances(manifest)
    started = time.process_time()
    predictions = run.predictor.evaluate(utterances).predictions
    seconds = time.process_time() - started
    outputs, expected = [row.output for row in predictions], [row.text for row in utterances]
    spelled = [spell_digits(output) for output in outputs]
    lenient = Leniency(case=True, punctuation=True)
    for name, texts, leniency in (("as written", outputs, STRICT), ("lenient", spelled, lenient)):
        rate = transcription_samples(texts, expected, leniency)[0]["wer"].estimate()
        value, low, high = (format_value(end, "error") for end in (rate.value, rate.low, rate.high))
        print(f"WER {name}\t{value}\t({low} - {high})")
    print(f"{len(utterances)} utterances, {seconds:.0f} s of CPU time")
    for output, text in list(zip(outputs, expected, strict=True))[:8]:
        print(f"    {text}\t{output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    logits = commands.add_parser("logits")
    logits.add_argument("folder", type=Path)
    logits.add_argument("recordings", type=Path, nargs="+")
    logits.set_defaults(run=lambda options: compare_logits(options.folder, options.recordings))
    wer = commands.add_parser("wer")
    wer.add_argument("run_folder", type=Path)
    wer.add_argument("manifest", type=Path)
    wer.set_defaults(run=lambda options: measure_wer(options.run_folder, options.manifest))
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
