"""The OpenAI API, compared with predictions and metrics of the run."""

import json
from pathlib import Path
from typing import Any

import pytest

from harken.decode.search import SearchConfig
from harken.formats.examples import SpokenWord
from harken.run import Run, load
from harken.serve.transcriptions import captions, transcription_response
from harken.tasks.prediction import Prediction

from .serving import Serving


def run_of(serving: Serving, task: str) -> Run:
    return load(serving.state.library.find(serving.run_id(task)).folder)


def complete(serving: Serving, status: int = 200, **fields: Any) -> Any:
    answer = serving.client.post("/v1/completions", json={"model": "lm", **fields})
    assert answer.status_code == status, answer.text
    return answer.json()


def test_models(serving: Serving) -> None:
    models = serving.client.get("/v1/models").json()["data"]
    assert {model["id"] for model in models} == {"lm", "transcribe"}


def test_greedy_completions_are_those_of_predict(serving: Serving) -> None:
    prompts = ["they duck", "and"]
    answer = complete(serving, prompt=prompts, max_tokens=5, temperature=0)
    run = run_of(serving, "lm").with_search(SearchConfig(max_tokens=5))
    expected = [prediction.output for prediction in run.predict(prompts)]
    assert [choice["text"] for choice in answer["choices"]] == expected
    assert answer["usage"]["total_tokens"] == 22 == answer["usage"]["prompt_tokens"] + 10
    samples = complete(serving, prompt="they", n=3, seed=7, max_tokens=4)["choices"]
    assert len({choice["text"] for choice in samples}) > 1
    assert samples == complete(serving, prompt="they", n=3, seed=7, max_tokens=4)["choices"]


def test_prompt_log_probabilities_are_those_of_evaluate(serving: Serving) -> None:
    text = "they duck and"
    run = run_of(serving, "lm")
    fields = {"prompt": text, "max_tokens": 0, "echo": True, "logprobs": 2}
    (choice,) = complete(serving, **fields)["choices"]
    log_probs = choice["logprobs"]
    assert choice["text"] == text == "".join(log_probs["tokens"])
    starts = [text.index("y"), text.index("d")]
    assert [log_probs["text_offset"][start] for start in starts] == starts  # tokens are characters
    assert all(len(top) == 2 for top in log_probs["top_logprobs"])
    predictor: Any = run.predictor
    nats = predictor.evaluate([text]).metrics["nats"].value
    mean = -sum(log_probs["token_logprobs"]) / len(log_probs["tokens"])
    assert mean == pytest.approx(nats, abs=1e-5)


def test_streams_have_the_same_text(serving: Serving) -> None:
    # An untrained model also generates bytes that are not text, whose decoding depends on the rest.
    requests = [{"prompt": "they", "max_tokens": 4, "seed": seed} for seed in range(99)]
    answers = ((item, complete(serving, **item)["choices"][0]) for item in requests)
    fields, whole = next(item for item in answers if item[1]["text"].isascii())
    received: list[str] = []
    with serving.client.stream(
        "POST", "/v1/completions", json={"model": "lm", "stream": True, **fields}
    ) as answer:
        received += (line.removeprefix("data: ") for line in answer.iter_lines() if line)
    assert received.pop() == "[DONE]"
    choices = [json.loads(part)["choices"][0] for part in received]
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    assert len(choices) >= 3 and choices[-1]["finish_reason"] == whole["finish_reason"]
    stop = whole["text"][2]
    (stopped,) = complete(serving, **fields, stop=stop)["choices"]
    assert stopped["text"] == whole["text"].partition(stop)[0]
    assert stopped["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"prompt": [[1, 2]]}, 400),
        ({"prompt": ["a"] * 17}, 400),
        ({"prompt": "a", "n": 9}, 400),
        ({"prompt": "a", "temperature": -1}, 400),
        ({"prompt": "a", "temperature": "hot"}, 400),
        ({"prompt": "a", "max_tokens": 10**9}, 400),
        ({"prompt": "duck " * 20, "max_tokens": 9}, 400),
        ({"prompt": "a", "best_of": 5}, 400),
        ({"prompt": "a", "url": "http://evil.example"}, 400),
        ({"prompt": "a", "stream": True, "n": 2}, 400),
        ({"prompt": "a", "model": "../lm"}, 404),
        ({"prompt": "a", "model": "caption"}, 400),
        ({"prompt": "a" * 2000}, 413),
    ],
)
def test_wrong_completions_are_refused(
    serving: Serving, fields: dict[str, Any], status: int
) -> None:
    assert complete(serving, status, **fields)["error"]["message"]


def test_transcriptions_are_those_of_predict(serving: Serving) -> None:
    run = run_of(serving, "transcribe")
    name = run.task.input(run.examples("dev")[0]).partition("#")[0]
    (prediction,) = run.predict([name], times=True)
    content = Path(name).read_bytes()

    def transcribe(style: str, **fields: str) -> Any:
        return serving.client.post(
            "/v1/audio/transcriptions",
            data={"model": "transcribe", "response_format": style, **fields},
            files={"file": ("../../etc/passwd", content, "audio/wav")},
        )

    assert transcribe("json").json() == {"text": prediction.output}
    assert transcribe("text").text == f"{prediction.output}\n"
    verbose = transcribe("verbose_json").json()
    assert verbose["duration"] == 1.0
    assert [word["start"] for word in verbose["words"]] == [word.start for word in prediction.words]
    assert transcribe("srt").text.startswith("1\n00:00:0")
    assert transcribe("vtt").text.startswith("WEBVTT\n\n00:00:0")
    assert transcribe("xml").status_code == 400
    assert transcribe("json", path="/etc/passwd").status_code == 400


def test_captions_end_at_pauses() -> None:
    words = [SpokenWord("a<b", 0.5, 1.25), SpokenWord("c", 1.5, 2.0), SpokenWord("d", 3600.5, 3601)]
    assert [caption.text for caption in captions(words)] == ["a<b c", "d"]
    prediction = Prediction(input="", output="a<b c d", confidence=1.0, words=words)
    text = transcription_response("vtt", prediction, 3601).body.decode()
    assert text == (
        "WEBVTT\n\n00:00:00.500 --> 00:00:02.000\na&lt;b c\n\n01:00:00.500 --> 01:00:01.000\nd\n"
    )
    subtitles = transcription_response("srt", prediction, 3601).body.decode()
    assert subtitles.startswith("1\n00:00:00,500 --> 00:00:02,000\na<b c\n\n2\n")


def test_status(serving: Serving) -> None:
    assert serving.client.get("/healthz").json() == {"status": "ok"}
    assert 'harken_answers_total{status="200"}' in serving.client.get("/metrics").text
    document = serving.client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert "post" in document["paths"]["/api/runs/{run}/inspect"]
    operations = [item for path in document["paths"].values() for item in path.values()]
    assert all(operation["summary"] for operation in operations)
