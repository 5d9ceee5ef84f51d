/** The chosen head, large: map, lines or text, with export. */
import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";
import { AttentionMap } from "./attention_map.js";
import { getMatrix, useFetched } from "./api.js";
import { download, matrixJSON, matrixPNG, matrixSVG } from "./export.js";
import { signed } from "./format.js";
import { html } from "./html.js";
import { PictureOverlay, SoundOverlay } from "./media.js";
import { hasOptions, rowWithToken, shownWeights, tokenOptions } from "./tokens.js";
import { rowOf } from "./weights.js";

const VIEWS = { map: "Map", lines: "Lines", text: "Text" };
const EXPORTS = { SVG: [matrixSVG, "svg"], PNG: [matrixPNG, "png"], JSON: [matrixJSON, "json"] };

/** Draw a matrix with AttentionMap; `onLock` gets a row or null. */
function MapView({ data, view, row, locked, zoom, theme, maxHeight, onLock, onSelect }) {
  const container = useRef(null);
  const map = useRef(null);
  useEffect(() => {
    map.current = new AttentionMap(container.current);
    return () => map.current.destroy();
  }, []);
  useEffect(() => {
    Object.assign(map.current, { lock: onLock, select: onSelect });
    map.current.update(data, { view, row, locked, zoom, maxHeight });
  }, [data, view, row, locked, zoom, theme, maxHeight]);
  return html`<div class="map-view" ref=${container}></div>`;
}

/** Return the height that is left for the map below the top of an element, which follows the sizes around it. */
function useRoom(reference) {
  const [room, setRoom] = useState(400);
  useEffect(() => {
    const panel = reference.current.closest(".head-panel");
    const measure = () => {
      const fillsWindow = panel.closest(".inspect") && !matchMedia("(max-width: 999px)").matches;
      const above = reference.current.getBoundingClientRect().top - panel.getBoundingClientRect().top;
      setRoom(Math.max(160, (fillsWindow ? panel.clientHeight - above : innerHeight * 0.55) - 48));
    };
    const observer = new ResizeObserver(measure);
    for (const element of [document.documentElement, panel, panel.querySelector(".toolbar")]) observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return room;
}

export function HeadPanel({ answer, head, params, theme, place, effect, onChange, onToggle, onExpired }) {
  const view = answer.views[head.view];
  const content = useRef(null);
  const { value, error } = useFetched(
    async (signal) => ({
      head: head.name,
      inspection: answer.id,
      matrix: await getMatrix(`/api/inspections/${answer.id}/weights/${head.layer}/${head.head}`, signal),
    }),
    [answer.id, head.name],
  );
  useEffect(() => {
    if (error?.type === "expired") onExpired(); // the server stores a limited number of inspections
  }, [error]);
  const room = useRoom(content);
  const options = tokenOptions(params);
  const available = hasOptions(view);
  const [shown, setShown] = useState(null);
  useEffect(() => {
    // A matrix of the previous inspection or head must not be drawn with this one's labels.
    if (value?.inspection !== answer.id || value.head !== head.name) return;
    setShown({ ...shownWeights(view, value.matrix, options), name: head.name, head, view });
  }, [value, answer.id, head.name, options.merged, options.hidden]);
  const token = params.query ? Number(params.query) - 1 : null;
  const locked = shown && token !== null ? rowWithToken(shown.rowGroups, token) : null;
  const start = shown && answer.focus?.view === head.view ? rowWithToken(shown.rowGroups, answer.focus.query) : 0;
  const [pointed, setPointed] = useState(null);
  useEffect(() => setPointed(null), [answer.id, params.query, options.merged, options.hidden]);
  const row = shown ? Math.min(locked ?? pointed ?? start ?? 0, shown.matrix.rows - 1) : 0;
  const lock = (index) => onChange({ query: index === null ? undefined : shown.rowGroups[index][0] + 1 });
  const current = params.view in VIEWS ? params.view : "map";
  return html`<section class="head-panel" aria-label=${`Chosen head${place}`}>
    <div class="toolbar">
      <h2>${head.name}</h2>
      <button type="button" aria-pressed=${String(head.disabled)} onClick=${onToggle} title="x">${head.disabled ? "Switch on" : "Switch off"}</button>
      <div class="segments" role="group" aria-label="View">${Object.entries(VIEWS).map(([key, label]) => html`
        <button type="button" aria-pressed=${String(current === key)} onClick=${() => onChange({ view: key })} title=${key[0]}>${label}</button>`)}
      </div>
      ${available.words && html`<label><input type="checkbox" checked=${options.merged} onChange=${(event) => onChange({ words: event.target.checked ? "1" : undefined })} /> Words</label>`}
      ${available.special && html`<label><input type="checkbox" checked=${!options.hidden} onChange=${(event) => onChange({ special: event.target.checked ? undefined : "0" })} /> Special tokens</label>`}
      ${shown && current === "map" && isLarge(shown) && html`<button type="button" aria-pressed=${String(params.zoom === "1")} title="z; the wheel moves the zoomed map"
        onClick=${() => onChange({ zoom: params.zoom === "1" ? undefined : "1" })}>Zoom</button>`}
      ${shown && html`<div class="segments" role="group" aria-label="Export">${Object.entries(EXPORTS).map(([name, [make, ending]]) => html`
        <button type="button" title=${`Save this head as ${name}`} onClick=${async () => download(await make(shown, answer), `${head.name}.${ending}`)}>${name}</button>`)}
      </div>`}
    </div>
    <p class="statistics muted">${statistics(head, effect)}</p>
    <div ref=${content}>
      ${error && html`<p class="error" role="alert">${error.message}</p>`}
      ${shown && html`
        ${view.sound && html`<${SoundOverlay} sound=${view.sound} url=${answer.input.url} weights=${rowOf(shown.matrix, row)} groups=${shown.columnGroups} theme=${theme} />`}
        ${view.picture?.url && html`<${PictureOverlay} picture=${view.picture} weights=${rowOf(shown.matrix, row)} groups=${shown.columnGroups} label=${shown.queries[row]} theme=${theme} />`}
        <${MapView} data=${shown} view=${current} row=${start} locked=${locked} zoom=${params.zoom === "1" && isLarge(shown)} theme=${theme} onLock=${lock} onSelect=${setPointed}
          maxHeight=${view.sound || view.picture?.url ? Math.max(260, room - 200) : room} />`}
    </div>
  </section>`;
}

/** Return whether tokens of the whole map may be too small to be read. */
function isLarge({ matrix }) {
  return Math.max(matrix.rows, matrix.columns) > 30;
}

function statistics(head, effect) {
  const number = (value, digits) => (value === null || value === undefined ? null : value.toFixed(digits));
  const parts = [
    head.pattern,
    number(head.entropy, 2) && `entropy ${number(head.entropy, 2)} nats`,
    number(head.offset, 0) && `offset ${number(head.offset, 0)}`,
    effect !== undefined && `effect ${signed(effect)} nats`,
  ];
  return parts.filter(Boolean).join(" · ") || "\u00a0";
}
