/** The view Inspect: input, output, all heads, and the chosen head. */
import { getJSON, useFetched } from "./api.js";
import { html } from "./html.js";
import { InputPanel } from "./input_panel.js";
import { Attention, Problem, useInspection } from "./inspection.js";
import { useKeys } from "./keyboard.js";
import { OutputPanel } from "./output_panel.js";
import { address, open, setParams } from "./url_state.js";

const NBEST = 5;

/** Return the parameters that another run keeps: the input, not the heads. */
function inputOf({ text, color, view }) {
  return { text, color, view };
}

export function RunSelect({ runs, value, label, onChange }) {
  const usable = runs.filter((run) => run.state === "finished");
  return html`<label class="run-select">${label} <select value=${value} onChange=${(event) => onChange(event.target.value)}>
    ${usable.map((run) => html`<option key=${run.id} value=${run.id}>${run.name} (${run.task})</option>`)}
  </select></label>`;
}

/** Return {value, error} of the list of runs. */
export function useRuns() {
  return useFetched(async (signal) => (await getJSON("/api/runs", signal)).runs, []);
}

function Inspect({ run, runs, params, theme }) {
  const { answer, error, loading, repeat } = useInspection(run.id, params, params.off, "inspect");
  const onOff = (off) => setParams({ off });
  useKeys({ answer, params, off: params.off, onChange: setParams, onOff });
  const choose = (id) => {
    const next = runs.find((other) => other.id === id);
    open("inspect", { run: id, ...(next.input === run.input && next.input === "lines" ? inputOf(params) : {}) });
  };
  const compared = address("compare", { ...params, run: run.id });
  return html`<div class="inspect" aria-busy=${String(loading)}>
    <div class="side">
      <${RunSelect} runs=${runs} value=${run.id} label="Run" onChange=${choose} />
      <${InputPanel} run=${run} answer=${answer} params=${params} onInput=${setParams} />
      ${error && html`<${Problem} error=${error} onRepeat=${repeat} />`}
      ${!error && !answer && html`<p class="muted" role="status">Loading the model…</p>`}
      ${answer && html`<${OutputPanel} answer=${answer} forced=${params.output} onForce=${(output) => setParams({ output })}
          onNbest=${(wanted) => setParams({ nbest: wanted ? NBEST : undefined })} />
        <p><a href=${compared}>Compare with another run or with heads off</a></p>`}
    </div>
    ${answer && html`<${Attention} key=${run.id} answer=${answer} params=${params} off=${params.off} theme=${theme} onChange=${setParams} onOff=${onOff} onExpired=${repeat} />`}
  </div>`;
}

export function InspectView({ params, theme }) {
  const { value: runs, error } = useRuns();
  if (error) return html`<${Problem} error=${error} />`;
  if (!runs) return html`<p class="notice muted" role="status">Loading…</p>`;
  const run = runs.find((item) => item.id === params.run) ?? (params.run ? null : runs.find((item) => item.state === "finished"));
  if (!run) return html`<p class="notice">${params.run ? "This run is not in the folder." : "No finished run. Train one, then reload this page."}</p>`;
  if (run.state !== "finished") return html`<p class="notice">The run ${run.name} has not finished training (${run.state}). Its curves are in <a href=${address("runs", { run: run.id })}>Runs</a>.</p>`;
  return html`<${Inspect} run=${run} runs=${runs} params=${params} theme=${theme} />`;
}
