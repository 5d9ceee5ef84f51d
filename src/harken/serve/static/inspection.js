/** One inspected run: its answer, the heads and the effects of removing them. */
import { useEffect, useState } from "./vendor/preact-hooks.js";
import { inspect, listen, useFetched } from "./api.js";
import { allHeads, COLORINGS, HeadGrid } from "./head_grid.js";
import { HeadPanel } from "./head_panel.js";
import { html } from "./html.js";

const TYPING_DELAY = 80; // milliseconds after a key press
const FIRST_EXAMPLE = 0;

function splitNames(text) {
  return text ? text.split(",") : [];
}

/** Return the inspection of the input in the parameters; a newer input replaces an older request. */
export function useInspection(run, params, off, client) {
  const body = { nbest: Number(params.nbest ?? 1), alternatives: 5, method: params.method === "mean" ? "mean" : "zero", disabled: splitNames(off) };
  if (params.text !== undefined) body.text = params.text;
  else if (params.media) body.media = params.media;
  else body.example = Number(params.example ?? FIRST_EXAMPLE);
  if (params.output !== undefined) body.output = params.output;
  const [attempt, setAttempt] = useState(0);
  const state = useFetched((signal) => inspect(run, body, { signal, client }), [run, JSON.stringify(body), attempt], {
    delay: params.text === undefined ? 0 : TYPING_DELAY,
  });
  const answer = state.value?.run === run ? state.value : null; // not that of the run shown before
  return { ...state, answer, repeat: () => setAttempt((value) => value + 1) };
}

/** Return {HEAD: change in log-probability}, which grows while the server sends; empty unless `active`. */
function useEffects(inspection, method, active) {
  const [state, setState] = useState({ inspection, values: {}, problem: null });
  useEffect(() => {
    if (!active) return undefined;
    const values = {};
    setState({ inspection, values: {}, problem: null });
    const source = listen(`/api/inspections/${inspection}/effects?method=${method}`, {
      effect: ({ head, change }) => {
        values[head] = change;
        setState({ inspection, values: { ...values }, problem: null });
      },
      failure: ({ error }) => {
        source.close();
        setState({ inspection, values: { ...values }, problem: error.message });
      },
      done: () => source.close(),
    });
    source.onerror = () => {
      source.close(); // a second stream would compute everything again
      setState({ inspection, values: { ...values }, problem: "The server stopped sending effects." });
    };
    return () => source.close();
  }, [inspection, method, active]);
  return state.inspection === inspection ? state : { values: {}, problem: null };
}

/** Return the chosen head, or the first one of the last layer of the view to start with. */
export function chosenHead(answer, name) {
  const heads = allHeads(answer);
  const named = heads.find((head) => head.name === name);
  if (named) return named;
  const layer = answer.views[answer.focus?.view ?? 0]?.layers.at(-1);
  return heads.find((head) => head.layer === layer?.name) ?? null;
}

/** Return the parameter `off` with one head added or removed. */
export function toggled(off, name) {
  const names = splitNames(off);
  const left = names.filter((other) => other !== name);
  return (left.length < names.length ? left : [...names, name]).join(",") || undefined;
}

/** The grid of heads and the chosen head. `off` lists the disabled heads; `place` completes the labels of regions. */
export function Attention({ answer, params, off, theme, place = "", onChange, onOff, onExpired }) {
  const coloring = params.color in COLORINGS ? params.color : "pattern";
  const method = params.method === "mean" ? "mean" : "zero";
  const { values: effects, problem } = useEffects(answer.id, method, coloring === "effect");
  const head = chosenHead(answer, params.head);
  if (!head) return html`<p class="muted notice">This model has no attention to show.</p>`;
  const names = splitNames(off);
  const choose = (name) => {
    onChange({ head: name });
    if (matchMedia("(max-width: 999px)").matches) {
      requestAnimationFrame(() => document.querySelector(".head-panel")?.scrollIntoView({ block: "nearest" }));
    }
  };
  return html`
    <section class="grid-panel" aria-label=${`All heads${place}`}>
      <div class="toolbar">
        <label>Color by <select value=${coloring} onChange=${(event) => onChange({ color: event.target.value })}>
          ${Object.entries(COLORINGS).map(([key, label]) => html`<option value=${key}>${label}</option>`)}
        </select></label>
        <label>Ablation <select value=${method} onChange=${(event) => onChange({ method: event.target.value === "mean" ? "mean" : undefined })}>
          <option value="zero">zero</option><option value="mean">mean</option>
        </select></label>
        ${names.length > 0 && html`<button type="button" onClick=${() => onOff(undefined)}>Switch on all (${names.length} off)</button>`}
      </div>
      ${coloring === "effect" && html`<p class="muted">${problem ?? "Change in the log-probability of the output without the head. Blue: the head supports the output."}</p>`}
      <div class="grid-scroll" tabindex="0" role="region" aria-label=${`Grid of heads${place}`}>
        <${HeadGrid} answer=${answer} chosen=${head.name} coloring=${coloring} effects=${effects} theme=${theme} onChoose=${choose} />
      </div>
    </section>
    <${HeadPanel} answer=${answer} head=${head} params=${params} theme=${theme} place=${place} effect=${effects[head.name]}
      onChange=${onChange} onToggle=${() => onOff(toggled(off, head.name))} onExpired=${onExpired} />`;
}

export function Problem({ error, onRepeat }) {
  return html`<div class="error" role="alert">
    <p>${error.message}${error.fix ? ` (${error.fix})` : ""}</p>
    ${onRepeat && html`<button type="button" onClick=${onRepeat}>Try again</button>`}
  </div>`;
}
