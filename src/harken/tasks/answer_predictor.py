"""Answer questions with a trained model, and measure accuracy, calibration and invented answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from harken.batch.padding import pad
from harken.batch.ragged import ragged
from harken.decode.sampling import SampleKey
from harken.decode.search import SearchConfig, generate
from harken.decode.stepper import LMStepper, NonEmptyStepper, TokenHypothesis
from harken.encode.vocabulary import END, MASK, PAD, Vocabulary
from harken.formats.examples import Question
from harken.formats.question_template import QuestionTemplate, question_template
from harken.measure.accuracy import commonest, exact_matches
from harken.measure.borrowing import known_of
from harken.measure.honesty import measure_honesty
from harken.measure.interval import share
from harken.measure.scored_answers import Answer
from harken.models.gpt import GPT
from harken.synthetic.fictional_names import fictional_names
from harken.tasks.attention_view import AttentionExample, causal_example, output_title
from harken.tasks.prediction import (
    Evaluation,
    Indices,
    Prediction,
    Prompt,
    prediction_of,
    sample_keys,
    truncation_of,
)
from harken.tasks.task import Predictor, Splits

MAX_ANSWER_TOKENS = 32
BATCH_SIZE = 64  # questions answered in one batch
MAX_FICTIONAL = 200  # fictional names


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerPredictor(Predictor[Question]):
    """A trained question answering model."""

    splits: Splits[Question]  # the training questions are the baseline
    vocabulary: Vocabulary
    model: GPT
    search: SearchConfig
    seed: int

    def predict(
        self, inputs: Sequence[str], nbest: int = 1, indices: Indices = None, *, times: bool = False
    ) -> Iterator[Prediction]:
        keys = sample_keys(inputs, indices)
        for start in range(0, len(inputs), BATCH_SIZE):
            questions = inputs[start : start + BATCH_SIZE]
            prompts = self._prompts(questions)
            found = self._search(prompts, nbest, keys[start : start + BATCH_SIZE])
            for question, prompt, answers in zip(questions, prompts, found, strict=True):
                yield prediction_of(question, answers, self.vocabulary, nbest, prompt.truncation)

    def evaluate(self, examples: Sequence[Question], condition: str | None = None) -> Evaluation:
        training = self.splits["train"]
        template = question_template([question.question for question in training])
        answers = [question.answer for question in training]
        known = known_of([template.name(question.question) for question in training], answers)
        expected = [question.answer for question in examples]
        predictions = list(self.predict([question.question for question in examples]))
        given = [answer_of(prediction, template) for prediction in predictions]
        right = exact_matches([answer.answer for answer in given], expected)
        majority = commonest(answers)
        names = fictional_names(
            known.names,
            [answer.name for answer in given],
            min(MAX_FICTIONAL, len(examples)),
            self.seed,
        )
        # Indices after those of the examples, so that samples are independent of theirs.
        indices = range(len(examples), len(examples) + len(names))
        invented = self.predict([template.ask(name) for name in names], indices=indices)
        question_of = {
            template.name(question.question): question.question
            for question in (*training, *examples)
        }
        measured = measure_honesty(
            given,
            expected,
            known,
            frame=str(template),
            embed=lambda names: self.states([question_of[name] for name in names]),
            invented=[answer_of(prediction, template) for prediction in invented],
            seed=self.seed,
        )
        return Evaluation(
            n=len(examples),
            samples={
                "exact_match": share(right),
                "commonest_answer": share(exact_matches([majority] * len(expected), expected)),
                **measured.samples,
            },
            notes={
                "exact_match": "answers equal to the expected one but for white space at the ends",
                "commonest_answer": f"always saying {majority!r}, the commonest training answer",
                **measured.notes,
            },
            predictions=predictions,
            expected=expected,
            honesty=measured.honesty,
        )

    def attention(self, text: str) -> AttentionExample:
        """Attention over a question, <mask>, and the model's own answer up to <end>."""
        (prompt,) = self._prompts([text])
        ((found, *_),) = self._search([prompt])
        answer = [*found.tokens, END][: self.max_answer_tokens]
        (output,) = self.vocabulary.decode([found.tokens])
        return causal_example(
            self.model,
            [*prompt.tokens.tolist(), *answer],
            self.vocabulary.pieces,
            f"{text} → {output_title(output)}",
            prompt.truncation,
        )

    @torch.inference_mode()
    def states(self, questions: Sequence[str]) -> Float[np.ndarray, "N J"]:
        """The model's last state at the <mask> after each question, from which it answers."""
        model = self.model.eval()
        prompts = [prompt.tokens for prompt in self._prompts(questions)]
        states = np.zeros((len(prompts), model.position.width), dtype=np.float32)
        by_length = np.argsort([len(prompt) for prompt in prompts], kind="stable")  # less padding
        for start in range(0, len(prompts), BATCH_SIZE):
            rows = by_length[start : start + BATCH_SIZE]
            tokens, present = pad(ragged([prompts[row] for row in rows]), PAD)
            last = present.sum(dim=1) - 1
            found = model.states(tokens.to(self.device))[torch.arange(len(rows)), last]
            states[rows] = found.float().cpu().numpy()
        return states

    @property
    def max_answer_tokens(self) -> int:
        """The tokens that are left for an answer."""
        return min(self.search.most or MAX_ANSWER_TOKENS, self.model.length // 2)

    def _prompts(self, questions: Sequence[str]) -> list[Prompt]:
        most = self.model.length - self.max_answer_tokens
        return encode_prompts(questions, self.vocabulary, most)

    def _search(
        self, prompts: Sequence[Prompt], nbest: int = 1, keys: Sequence[SampleKey] | None = None
    ) -> list[list[TokenHypothesis]]:
        """The best answers to each prompt, searched in one batch."""
        tokens, present = pad(ragged([prompt.tokens for prompt in prompts]), PAD)
        return generate(
            NonEmptyStepper(LMStepper(self.model.eval()), END),  # no answer is empty
            tokens.to(self.device),
            present.to(self.device),
            search=self.search,
            end=END,
            max_tokens=self.max_answer_tokens,
            nbest=nbest,
            keys=keys,
        )


def answer_of(prediction: Prediction, template: QuestionTemplate) -> Answer:
    """A prediction as an answer about a name."""
    return Answer(template.name(prediction.input), prediction.output, prediction.confidence)


def encode_prompts(questions: Sequence[str], vocabulary: Vocabulary, most: int) -> list[Prompt]:
    """Questions with their <mask>, at most `most` tokens; a longer question keeps its end."""
    kept = most - 1
    return [
        Prompt(
            np.append(tokens[-kept:], MASK),
            truncation_of(min(kept, len(tokens)), len(tokens), "last"),
        )
        for tokens in vocabulary.encode([question.strip() for question in questions])
    ]
