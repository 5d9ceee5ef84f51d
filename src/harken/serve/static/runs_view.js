/** The view Runs: all runs of the folder, and the curves of one. */
import { useEffect, useState } from "./vendor/preact-hooks.js";
import { getJSON, listen, useFetched } from "./api.js";
import { Chart } from "./curve_chart.js";
import { count } from "./format.js";
import { html } from "./html.js";
import { Problem } from "./inspection.js";
import { address } from "./url_state.js";

const REFRESH = 5000; // milliseconds, while a run is training

/** Return {events, state} of a run, which grow while it trains. */
function useCurves(id) {
  const [curves, setCurves] = useState({ id, events: [], state: null, error: null });
  useEffect(() => {
    let source = null;
    let closed = false;
    setCurves({ id, events: [], state: null, error: null });
    getJSON(`/api/runs/${id}/curves`).then(({ state, events, position }) => {
      if (closed) return;
      setCurves({ id, events, state, error: null });
      if (state === "finished" || state === "damaged") return;
      source = listen(`/api/runs/${id}/curves/events?position=${position}`, {
        log: (event) => setCurves((before) => ({ ...before, events: [...before.events, event] })),
        state: ({ state: now }) => {
          setCurves((before) => ({ ...before, state: now }));
          if (now === "finished") source.close();
        },
      });
    }).catch((error) => setCurves({ id, events: [], state: null, error }));
    return () => {
      closed = true;
      source?.close();
    };
  }, [id]);
  return curves;
}

/** Return the charts of a run's stages: {stage, title, points, last, logarithmic, dots}. */
function chartsOf(events) {
  const stages = [...new Set(events.map((event) => event.stage).filter(Boolean))];
  return stages.flatMap((stage) => {
    const own = events.filter((event) => event.stage === stage);
    const points = (kind, key) => own.filter((event) => event.event === kind && Number.isFinite(event[key]))
      .map((event) => ({ step: event.step, value: event[key] }));
    const [losses, dev] = [points("stepped", "loss"), points("evaluated", "value")];
    const last = Math.max(1, ...own.map((event) => event.steps ?? event.step ?? 0));
    return [
      losses.length && { stage, title: `${stage}: training loss`, points: losses, last, logarithmic: true, dots: false },
      dev.length && { stage, title: `${stage}: dev`, points: dev, last, logarithmic: false, dots: true },
    ].filter(Boolean);
  });
}

function RunDetail({ run }) {
  const { events, state, error } = useCurves(run.id);
  const { value: detail } = useFetched((signal) => getJSON(`/api/runs/${run.id}`, signal), [run.id, state]);
  const charts = chartsOf(events);
  return html`<section class="run-detail" aria-label=${`Run ${run.name}`}>
    <h2>${run.name} <span class="muted">${state ?? ""}</span></h2>
    ${run.problem && html`<p class="error">${run.problem}</p>`}
    ${error && html`<${Problem} error=${error} />`}
    ${!error && state && charts.length === 0 && html`<p class="muted">This run has logged no step.</p>`}
    <div class="charts">${charts.map((chart) => html`<${Chart} key=${chart.title} ...${chart} />`)}</div>
    ${detail?.metrics?.length > 0 && html`<h2 class="part">Metrics</h2><div class="scroll" tabindex="0" role="region" aria-label="Metrics"><table>
      <thead><tr><th scope="col">metric</th><th scope="col">value (95 % interval)</th></tr></thead>
      <tbody>${detail.metrics.map((metric) => html`<tr key=${metric.name}><th scope="row">${metric.title}</th><td>${metric.text}</td></tr>`)}</tbody>
    </table></div>`}
    ${detail?.recipe && html`<details><summary>Recipe</summary><pre tabindex="0" role="region" aria-label="Recipe">${detail.recipe}</pre></details>`}
  </section>`;
}

function State({ run }) {
  const progress = run.state === "training" && run.steps ? `, ${run.stage} ${run.step}/${run.steps}` : "";
  return html`<span class=${`state ${run.state}`}>${run.state}${progress}</span>`;
}

function RunRow({ run, chosen }) {
  const finished = run.state === "finished";
  return html`<tr class=${chosen ? "chosen" : ""}>
    <th scope="row"><a href=${address("runs", { run: run.id })} aria-current=${chosen ? "true" : undefined}>${run.name}</a></th>
    <td>${run.task ?? "–"}</td><td><${State} run=${run} /></td>
    <td>${run.metric ? html`<span class="muted">${run.metric.title}</span> ${run.metric.text}` : "–"}</td>
    <td class="number">${count(run.parameters)}</td><td class="date">${run.date ?? "–"}</td>
    <td class="actions">${finished && html`<a href=${address("inspect", { run: run.id })} aria-label=${`Inspect ${run.name}`}>Inspect</a>
      <a href=${address("examples", { run: run.id })} aria-label=${`Examples of ${run.name}`}>Examples</a>`}</td>
  </tr>`;
}

export function RunsView({ params }) {
  const [time, setTime] = useState(0);
  const { value: runs, error } = useFetched(async (signal) => (await getJSON("/api/runs", signal)).runs, [time]);
  const training = runs?.some((run) => run.state === "training");
  useEffect(() => {
    if (!training) return undefined;
    const timer = setInterval(() => setTime((value) => value + 1), REFRESH);
    return () => clearInterval(timer);
  }, [training]);
  if (error) return html`<${Problem} error=${error} onRepeat=${() => setTime((value) => value + 1)} />`;
  if (!runs) return html`<p class="notice muted" role="status">Loading…</p>`;
  if (runs.length === 0) return html`<p class="notice">The folder has no run. Train one with harken train.</p>`;
  const chosen = runs.find((run) => run.id === params.run);
  return html`<div class="page">
    <div class="scroll" tabindex="0" role="region" aria-label="Runs"><table class="runs">
      <thead><tr>${["run", "task", "state", "main metric (95 % interval)"].map((title) => html`<th scope="col">${title}</th>`)}
        <th scope="col" class="number">parameters</th><th scope="col">date</th><th scope="col">open in</th></tr></thead>
      <tbody>${runs.map((run) => html`<${RunRow} key=${run.id} run=${run} chosen=${run === chosen} />`)}</tbody>
    </table></div>
    ${chosen ? html`<${RunDetail} key=${chosen.id} run=${chosen} />` : html`<p class="muted">Choose a run to see its curves.</p>`}
  </div>`;
}
