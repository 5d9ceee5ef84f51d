/** The view Examples: the dev set with predictions, filtered and sorted; a row opens in Inspect. */
import { useEffect, useState } from "./vendor/preact-hooks.js";
import { getJSON, useFetched } from "./api.js";
import { MarkedOutput } from "./difference.js";
import { percent } from "./format.js";
import { html } from "./html.js";
import { RunSelect, useRuns } from "./inspect_view.js";
import { Problem } from "./inspection.js";
import { address, open, setParams } from "./url_state.js";

const FILTERS = { all: "all", wrong: "wrong", uncertain: "uncertain (confidence below 50 %)", long: "long or truncated" };
const SORTS = { index: "order in the file", confidence: "confidence", length: "length" };
const SIZE = 50;

function Input({ example, form }) {
  if (!example.media) return example.input;
  if (form === "images") return html`<img class="thumbnail" src=${example.media} alt=${`Example ${example.number}`} loading="lazy" />`;
  return html`<audio src=${example.media} controls preload="none" aria-label=${`Example ${example.number}`}></audio>`;
}

/** Return the address of an example in Inspect; a text can be edited there. */
function addressOf(run, { number, input }) {
  return address("inspect", { run: run.id, ...(run.input === "lines" ? { text: input } : { example: number }) });
}

function Rows({ run, page }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Examples"><table class="examples">
    <thead><tr><th scope="col">no.</th><th scope="col">input</th>${page.has_targets && html`<th scope="col">expected</th>`}
      <th scope="col">output</th><th scope="col" class="number">confidence</th><th scope="col" class="number">length</th></tr></thead>
    <tbody>${page.examples.map((example) => html`<tr key=${example.number} class=${example.correct === false ? "wrong" : ""}>
      <td><a href=${addressOf(run, example)}>${example.number}<span class="visually-hidden">, open in Inspect</span></a></td>
      <td><${Input} example=${example} form=${run.input} /></td>
      ${page.has_targets && html`<td>${example.expected ?? "–"}</td>`}
      <td>${example.correct === false && html`<span class="cross" title="wrong">✗<span class="visually-hidden">wrong: </span></span> `}<${MarkedOutput} reference=${example.expected} output=${example.output} /></td>
      <td class="number">${percent(example.confidence)}</td><td class="number">${example.length}</td>
    </tr>`)}</tbody>
  </table></div>`;
}

function Pages({ page }) {
  return html`<nav class="pages" aria-label="Pages">
    <button type="button" disabled=${page.page <= 1} onClick=${() => setParams({ page: page.page - 1 })}>Previous</button>
    <span>page ${page.page} of ${Math.max(1, page.pages)}, ${page.total} of ${page.predicted} examples</span>
    <button type="button" disabled=${page.page >= page.pages} onClick=${() => setParams({ page: page.page + 1 })}>Next</button>
  </nav>`;
}

function Examples({ run, runs, params }) {
  const filter = params.filter in FILTERS ? params.filter : "all";
  const sort = params.sort in SORTS ? params.sort : "index";
  const query = new URLSearchParams({ filter, sort, page: params.page ?? 1, size: SIZE });
  const [part, setPart] = useState(0);
  const { value: page, error, loading } = useFetched((signal) => getJSON(`/api/runs/${run.id}/examples?${query}`, signal), [run.id, String(query), part]);
  useEffect(() => {
    if (page?.complete === false) setPart((value) => value + 1); // each request predicts more examples
  }, [page]);
  const { wrong, ...others } = FILTERS; // without targets no output is wrong
  const filters = page?.has_targets === false ? others : { all: FILTERS.all, wrong, ...others };
  const select = (key, options) => html`<select value=${key === "filter" ? filter : sort} onChange=${(event) => setParams({ [key]: event.target.value, page: undefined })}>
    ${Object.entries(options).map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select>`;
  return html`<div class="page">
    <div class="toolbar">
      <${RunSelect} runs=${runs} value=${run.id} label="Run" onChange=${(id) => open("examples", { run: id })} />
      <label>Show ${select("filter", filters)}</label><label>Sort by ${select("sort", SORTS)}</label>
    </div>
    ${error && html`<${Problem} error=${error} />`}
    ${loading && html`<p class="muted" role="status">Predicting the examples…${page ? ` ${page.predicted} so far` : ""}</p>`}
    ${page && html`<${Rows} run=${run} page=${page} /><${Pages} page=${page} />`}
  </div>`;
}

export function ExamplesView({ params }) {
  const { value: runs, error } = useRuns();
  if (error) return html`<${Problem} error=${error} />`;
  if (!runs) return html`<p class="notice muted" role="status">Loading…</p>`;
  const run = runs.find((item) => item.id === params.run) ?? (params.run ? null : runs.find((item) => item.state === "finished"));
  if (!run) return html`<p class="notice">There is no finished run.</p>`;
  return html`<${Examples} run=${run} runs=${runs} params=${params} />`;
}
