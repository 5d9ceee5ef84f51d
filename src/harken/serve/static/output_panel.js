/** The output of an inspection: text, probability, alternatives per step, n-best, labels, tags, word times. */
import { useEffect, useState } from "./vendor/preact-hooks.js";
import { visible } from "./attention_map.js";
import { MarkedOutput } from "./difference.js";
import { percent, signed } from "./format.js";
import { html } from "./html.js";

const SEARCHED = ["answer", "caption", "transcribe", "translate"]; // tasks with a beam search

function Bar({ probability }) {
  return html`<span class="bar" aria-hidden="true"><span style=${{ width: `${100 * probability}%` }}></span></span>`;
}

function Steps({ steps }) {
  const [chosen, setChosen] = useState(0);
  useEffect(() => setChosen((index) => Math.min(index, Math.max(0, steps.length - 1))), [steps.length]);
  const step = steps[Math.min(chosen, steps.length - 1)];
  return html`<h2 class="part">Steps</h2>
    <div class="steps" role="group" aria-label="Output tokens">${steps.map((item, index) => html`
      <button type="button" key=${index} aria-pressed=${String(index === chosen)} onClick=${() => setChosen(index)}
        onMouseEnter=${() => setChosen(index)} title=${percent(item.probability)}>
        ${visible(item.token)}<${Bar} probability=${item.probability} />
      </button>`)}
    </div>
    ${step.alternatives.length > 0 && html`<table class="ranking">
      <caption>Alternatives at step ${chosen + 1}</caption>
      <tbody>${step.alternatives.map((item) => html`<tr key=${item.token} class=${item.token === step.token ? "chosen" : ""}>
        <td>${visible(item.token)}</td><td><${Bar} probability=${item.probability} /></td><td class="number">${percent(item.probability)}</td>
      </tr>`)}</tbody>
    </table>`}`;
}

function Ranking({ caption, rows }) {
  return html`<table class="ranking"><caption>${caption}</caption>
    <tbody>${rows.map(([text, probability], index) => html`<tr key=${index}>
      <td>${text}</td><td><${Bar} probability=${probability} /></td><td class="number">${percent(probability)}</td>
    </tr>`)}</tbody>
  </table>`;
}

function Tags({ tags }) {
  return html`<p class="tags">${tags.map(({ token, tag, score }, index) => html`
    <span key=${index}>${token}<b>${tag}</b><small>${percent(score)}</small></span>`)}</p>`;
}

function Words({ words }) {
  return html`<p class="tags">${words.map(({ word, start, end }, index) => html`
    <span key=${index}>${word}<small>${start.toFixed(2)}–${end.toFixed(2)} s</small></span>`)}</p>`;
}

function ForcedOutput({ answer, forced, onForce }) {
  const [value, setValue] = useState(forced ?? answer.output.text);
  useEffect(() => {
    if (forced === undefined) setValue(answer.output.text);
  }, [answer.output.text, forced]);
  const submit = (event) => {
    event.preventDefault();
    onForce(value);
  };
  return html`<details class="forced" open=${forced !== undefined}><summary>Forced output</summary>
    <form onSubmit=${submit}>
      <label class="field">Output whose probability and attention are computed
        <input value=${value} onInput=${(event) => setValue(event.target.value)} /></label>
      <button type="submit">Force</button>
      <button type="button" disabled=${forced === undefined} onClick=${() => onForce(undefined)}>Use the model's own</button>
    </form>
  </details>`;
}

export function OutputPanel({ answer, reference, place = "", forced, onForce, onNbest }) {
  const { output, nbest, labels, tags, words, steps, truncation } = answer;
  const changed = reference && reference.output.text !== output.text;
  const known = output.log_probability !== null;
  return html`<section class="output-panel" aria-label=${`Output${place}`}>
    ${truncation && html`<p class="warning" role="status">The input was truncated: ${truncation.text}.</p>`}
    <p class="muted">Output${output.forced ? " (forced)" : ""} · ${answer.milliseconds.toFixed(0)} ms</p>
    <p class="output" aria-live="polite"><output>${!output.text.trim() ? (output.text && visible(output.text)) || "(empty)" : html`<${MarkedOutput} reference=${reference?.output.text ?? null} output=${output.text} />`}</output></p>
    <p class="muted">Probability <b>${percent(output.probability)}</b>${known && `, log-probability ${output.log_probability.toFixed(3)}`}</p>
    ${reference && html`<p class="muted">${changed
      ? html`<span class="changed">The output differs from the first column.</span>`
      : `The output is that of the first column${known ? `; its log-probability changes by ${signed(output.log_probability - reference.output.log_probability)}` : ""}.`}</p>`}
    ${tags.length > 0 && html`<${Tags} tags=${tags} />`}
    ${words.length > 0 && html`<${Words} words=${words} />`}
    ${labels.length > 0 && html`<${Ranking} caption="Labels" rows=${labels.slice(0, 10).map((label) => [label.label, label.probability])} />`}
    ${steps.length > 0 && html`<${Steps} steps=${steps} />`}
    ${onNbest && SEARCHED.includes(answer.task) && html`<details open=${nbest.length > 1} onToggle=${(event) => onNbest(event.target.open)}>
      <summary>N-best</summary><${Ranking} caption="Outputs of the search" rows=${nbest.map((item) => [item.output, item.probability])} />
    </details>`}
    ${onForce && answer.views.length > 0 && html`<${ForcedOutput} answer=${answer} forced=${forced} onForce=${onForce} />`}
  </section>`;
}
