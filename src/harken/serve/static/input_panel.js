/** The input of the inspected run: a text, a sound (file or microphone) or an image. */
import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";
import { upload } from "./api.js";
import { html } from "./html.js";

const TEXT_LABELS = {
  answer: "Question", classify: "Text", fill: "Text with blanks", lm: "Beginning of a text", tag: "Sentence", translate: "Source text",
};

function TextInput({ task, text, example, onText }) {
  const field = useRef(null);
  const [value, setValue] = useState(text);
  useEffect(() => {
    // The field keeps what is being typed; another text comes from an example or the address.
    if (document.activeElement !== field.current) setValue(text);
  }, [text]);
  const change = (event) => {
    setValue(event.target.value);
    onText(event.target.value);
  };
  return html`<label class="field">${TEXT_LABELS[task] ?? "Text"}
    <textarea id="input" ref=${field} rows="3" spellcheck="false" value=${value} placeholder=${example === null ? "" : `Example ${example} of the dev set`} onInput=${change}></textarea>
  </label>`;
}

/** Return recorded audio as a WAV file of 16-bit samples, which every recognizer reads. */
async function wavOf(recording) {
  const context = new AudioContext();
  const audio = await context.decodeAudioData(await recording.arrayBuffer());
  await context.close();
  const samples = audio.getChannelData(0);
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const text = (offset, letters) => [...letters].forEach((letter, index) => view.setUint8(offset + index, letter.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true); // PCM
  view.setUint16(22, 1, true); // channels
  view.setUint32(24, audio.sampleRate, true);
  view.setUint32(28, 2 * audio.sampleRate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((sample, index) => view.setInt16(44 + 2 * index, 32767 * Math.max(-1, Math.min(1, sample)), true));
  return new Blob([view], { type: "audio/wav" });
}

function Microphone({ onRecorded, onError }) {
  const recorder = useRef(null);
  const [recording, setRecording] = useState(false);
  useEffect(() => () => recorder.current?.stream.getTracks().forEach((track) => track.stop()), []);
  const start = async () => {
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      const parts = [];
      recorder.current = new MediaRecorder(stream);
      recorder.current.addEventListener("dataavailable", (event) => parts.push(event.data));
      recorder.current.addEventListener("stop", async () => {
        stream.getTracks().forEach((track) => track.stop());
        setRecording(false);
        try {
          onRecorded(await wavOf(new Blob(parts)));
        } catch {
          onError(new Error("the recording cannot be decoded"));
        }
      });
      recorder.current.start();
      setRecording(true);
    } catch (error) {
      onError(new Error(`the microphone is not available (${error.message})`));
    }
  };
  return html`<button type="button" class=${recording ? "recording" : ""} onClick=${recording ? () => recorder.current.stop() : start}>
    ${recording ? "Stop recording" : "Record"}
  </button>`;
}

function FileInput({ run, form, url, onMedia }) {
  const [state, setState] = useState({ busy: false, error: null, over: false });
  const send = async (blob) => {
    if (!blob) return;
    setState({ busy: true, error: null, over: false });
    try {
      const { input } = await upload(run, blob);
      setState({ busy: false, error: null, over: false });
      onMedia(input.media);
    } catch (error) {
      setState({ busy: false, error, over: false });
    }
  };
  const over = (event) => {
    event.preventDefault();
    setState((before) => ({ ...before, over: true }));
  };
  const drop = (event) => {
    event.preventDefault();
    send(event.dataTransfer.files[0]);
  };
  const kind = form === "sounds" ? "sound" : "image";
  return html`<div class=${`drop ${state.over ? "over" : ""}`} onDragOver=${over} onDrop=${drop}
      onDragLeave=${() => setState((before) => ({ ...before, over: false }))}>
    <label class="field">Drop ${kind === "sound" ? "a sound" : "an image"} here, or choose a file
      <input id="input" type="file" accept=${kind === "sound" ? "audio/*" : "image/*"} onChange=${(event) => send(event.target.files[0])} />
    </label>
    ${kind === "sound" && html`<${Microphone} onRecorded=${send} onError=${(error) => setState({ busy: false, error, over: false })} />`}
    ${state.busy && html`<p class="muted" role="status">Uploading…</p>`}
    ${state.error && html`<p class="error" role="alert">${state.error.message}</p>`}
    ${kind === "image" && url && html`<img class="preview" src=${url} alt="Input image" />`}
  </div>`;
}

/** `answer` is the latest inspection or null; `onInput` gets the changed parameters. */
export function InputPanel({ run, answer, params, onInput }) {
  const clear = { text: undefined, media: undefined, example: undefined, output: undefined, query: undefined };
  return html`<section class="input-panel" aria-label="Input">
    ${run.input === "lines"
      ? html`<${TextInput} key=${run.id} task=${run.task} text=${params.text ?? answer?.input.text ?? ""} example=${answer?.input.example ?? null} onText=${(text) => onInput({ ...clear, text })} />`
      : html`<${FileInput} key=${run.id} run=${run.id} form=${run.input} url=${answer?.input.url} onMedia=${(media) => onInput({ ...clear, media })} />`}
  </section>`;
}
