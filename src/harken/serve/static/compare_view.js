/** The view Compare: the same input in two columns, with another run or other heads switched off. */
import { getJSON, useFetched } from "./api.js";
import { html } from "./html.js";
import { InputPanel } from "./input_panel.js";
import { RunSelect, useRuns } from "./inspect_view.js";
import { Attention, Problem, useInspection } from "./inspection.js";
import { useKeys } from "./keyboard.js";
import { OutputPanel } from "./output_panel.js";
import { setParams } from "./url_state.js";

/** Names of the parameters of each column. */
const COLUMNS = [
  { run: "run", off: "off", head: "head", query: "query", title: "First" },
  { run: "run2", off: "off2", head: "head2", query: "query2", title: "Second" },
];

/** Parameters of a column under their usual names. The columns share a head until one is chosen in the second. */
function columnParams(params, names) {
  return { ...params, head: params[names.head] ?? params.head, query: params[names.query] ?? params.query };
}

function columnChange(names) {
  return (changes) => setParams(Object.fromEntries(Object.entries(changes).map(([key, value]) => [names[key] ?? key, value])));
}

function Column({ names, state, params, runs, run, active, reference, theme, onActivate }) {
  const { answer, error, repeat } = state;
  const place = `, ${names.title.toLowerCase()} column`;
  return html`<section class=${`column ${active ? "active" : ""}`} aria-label=${`${names.title} column`} onPointerDown=${onActivate} onFocusIn=${onActivate}>
    <${RunSelect} runs=${runs.filter((other) => other.input === run.input)} value=${run.id} label=${names.title} onChange=${(id) => setParams({ [names.run]: id })} />
    ${error && html`<${Problem} error=${error} onRepeat=${repeat} />`}
    ${answer && html`
      <p class="muted">${answer.disabled.length ? `Heads off: ${answer.disabled.join(", ")}` : "All heads on"}</p>
      <${OutputPanel} answer=${answer} reference=${reference} place=${place} />
      <${Attention} key=${run.id} answer=${answer} params=${columnParams(params, names)} off=${params[names.off]} theme=${theme} place=${place}
        onChange=${columnChange(names)} onOff=${(off) => setParams({ [names.off]: off })} onExpired=${repeat} />`}
  </section>`;
}

function RecipeDifference({ first, second }) {
  const { value } = useFetched(
    async (signal) => (first === second ? null : getJSON(`/api/recipes/diff?first=${first}&second=${second}`, signal)),
    [first, second],
  );
  if (!value || first === second) return null;
  const text = (item) => (item === null ? "–" : typeof item === "string" ? item : JSON.stringify(item));
  return html`<details class="difference"><summary>Recipe keys that differ: ${value.rows.length}</summary>
    <div class="scroll" tabindex="0" role="region" aria-label="Recipe keys that differ"><table>
      <thead><tr><th scope="col">key</th><th scope="col">${value.first.name}</th><th scope="col">${value.second.name}</th></tr></thead>
      <tbody>${value.rows.map((row) => html`<tr key=${row.key}><th scope="row">${row.key}</th><td>${text(row.first)}</td><td>${text(row.second)}</td></tr>`)}</tbody>
    </table></div>
  </details>`;
}

function Compare({ first, second, runs, params, theme }) {
  const states = [
    useInspection(first.id, params, params.off, "first"),
    useInspection(second.id, params, params.off2, "second"),
  ];
  const active = params.column === "1" ? 0 : 1;
  const names = COLUMNS[active];
  useKeys({
    answer: states[active].answer,
    params: columnParams(params, names),
    off: params[names.off],
    onChange: columnChange(names),
    onOff: (off) => setParams({ [names.off]: off }),
  });
  return html`<div class="compare">
    <div class="shared">
      <${InputPanel} run=${first} answer=${states[0].answer} params=${params} onInput=${(changes) => setParams({ ...changes, query2: undefined })} />
      <p class="muted">Keys act on the ${names.title.toLowerCase()} column; click a column to choose it.</p>
      <${RecipeDifference} first=${first.id} second=${second.id} />
    </div>
    <div class="columns">${[first, second].map((run, index) => html`
      <${Column} key=${index} names=${COLUMNS[index]} state=${states[index]} run=${run} params=${params} runs=${runs} theme=${theme}
        active=${index === active} reference=${index ? states[0].answer : null} onActivate=${() => params.column !== String(index + 1) && setParams({ column: index + 1 })} />`)}
    </div>
  </div>`;
}

export function CompareView({ params, theme }) {
  const { value: runs, error } = useRuns();
  if (error) return html`<${Problem} error=${error} />`;
  if (!runs) return html`<p class="notice muted" role="status">Loading…</p>`;
  const finished = runs.filter((run) => run.state === "finished");
  const first = finished.find((run) => run.id === params.run) ?? (params.run ? null : finished[0]);
  const second = finished.find((run) => run.id === params.run2) ?? (params.run2 ? null : first);
  if (!first || !second) return html`<p class="notice">There is no finished run to compare.</p>`;
  if (first.input !== second.input) return html`<p class="notice">The runs read different inputs (${first.input}, ${second.input}).</p>`;
  return html`<${Compare} first=${first} second=${second} runs=${finished} params=${params} theme=${theme} />`;
}
