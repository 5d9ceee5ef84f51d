/** The grid of all heads: a row per layer, colored by attention pattern, effect, entropy or offset. */
import { useEffect, useId, useRef, useState } from "./vendor/preact-hooks.js";
import { getMatrix } from "./api.js";
import { heatImage, interpolate, readableOn, themeColors } from "./colors.js";
import { signed } from "./format.js";
import { html } from "./html.js";

const SMALL = 40; // rows and columns of a small map
export const COLORINGS = { pattern: "pattern", effect: "effect", entropy: "entropy", offset: "offset" };

/** Return all heads of an inspection with their place: {name, layer, view, head, …statistics}. */
export function allHeads(answer) {
  return answer.views.flatMap((view, index) =>
    view.layers.flatMap((layer) => layer.heads.map((head) => ({ ...head, layer: layer.name, view: index }))),
  );
}

function SmallMap({ inspection, head, theme }) {
  const canvas = useRef(null);
  const [matrix, setMatrix] = useState(null);
  useEffect(() => {
    const controller = new AbortController();
    getMatrix(`/api/inspections/${inspection}/weights/${head.layer}/${head.head}?size=${SMALL}`, controller.signal)
      .then(setMatrix, () => {}); // the chosen head's own request reports errors
    return () => controller.abort();
  }, [inspection, head.name]);
  useEffect(() => {
    if (!matrix || !canvas.current) return;
    [canvas.current.width, canvas.current.height] = [matrix.columns, matrix.rows];
    canvas.current.getContext("2d").putImageData(heatImage(matrix, themeColors().scale), 0, 0);
  }, [matrix, theme]);
  return html`<canvas ref=${canvas} aria-hidden="true"></canvas>`;
}

/** Return {text, exact, position} of a head's number: `exact` for its label, position 0 to 1 on the color scale or null. */
function number(head, coloring, effects, range) {
  if (coloring === "effect") {
    const change = effects[head.name];
    if (change === undefined) return { text: head.disabled ? "" : "…", position: null };
    return { text: signed(change, 2), exact: signed(change, 5), position: 0.5 + change / (2 * range) };
  }
  const value = head[coloring];
  if (value === null) return { text: "–", position: null };
  if (coloring === "entropy") return { text: value.toFixed(2), position: value / range };
  return { text: value.toFixed(1), position: 0.5 - value / (2 * range) };
}

function largest(heads, coloring, effects) {
  const values = coloring === "effect" ? Object.values(effects) : heads.map((head) => head[coloring] ?? 0);
  return Math.max(1e-6, ...values.map(Math.abs));
}

function Head({ head, chosen, coloring, effects, range, inspection, theme, onChoose }) {
  const colors = themeColors();
  let style = "";
  let [text, label] = ["", [head.name]];
  if (coloring !== "pattern") {
    const { text: shown, exact = shown, position } = number(head, coloring, effects, range);
    text = shown;
    if (text) label.push(`${coloring} ${exact}`);
    if (position !== null) {
      const color = interpolate(coloring === "entropy" ? colors.scale : colors.diverging, position);
      style = { background: `rgb(${color.join(" ")})`, color: readableOn(color) };
    }
  }
  if (head.pattern) label.push(head.pattern);
  if (head.disabled) label.push("switched off");
  label = label.join(", ");
  return html`<button type="button" class=${`head ${coloring} ${head.disabled ? "off" : ""}`} style=${style}
    data-head=${head.name} tabindex=${chosen ? 0 : -1} aria-pressed=${String(chosen)} aria-label=${label} title=${label}
    onClick=${() => onChoose(head.name)}>
    ${coloring === "pattern" ? html`<${SmallMap} inspection=${inspection} head=${head} theme=${theme} />` : text}
  </button>`;
}

export function HeadGrid({ answer, chosen, coloring, effects, theme, onChoose }) {
  const heads = allHeads(answer);
  const range = largest(heads, coloring, effects);
  const id = useId();
  const most = Math.max(...answer.views.flatMap((view) => view.layers.map((layer) => layer.heads.length)));
  const longest = Math.max(...heads.map((head) => head.layer.length));
  const element = useRef(null);
  useEffect(() => {
    // scrollIntoView would also scroll the page.
    const button = element.current.querySelector(".head[aria-pressed=true]");
    const scroller = element.current.closest(".grid-scroll");
    const [inner, outer] = [button.getBoundingClientRect(), scroller.getBoundingClientRect()];
    scroller.scrollTop += Math.max(0, inner.bottom + 4 - outer.bottom) + Math.min(0, inner.top - 4 - outer.top);
    scroller.scrollLeft += Math.max(0, inner.right + 4 - outer.right) + Math.min(0, inner.left - 120 - outer.left);
  }, [chosen]);
  const style = { "--cell": `${Math.max(32, Math.min(48, Math.floor(400 / most)))}px`, "--name": `${longest}ch` };
  return html`<div class=${`grid-views ${most > 8 ? "dense" : ""}`} style=${style} ref=${element}>${answer.views.map((view, index) => html`
    <div key=${index}><h2 class="part" id=${`${id}-${index}`}>${view.title}</h2>
    <table class="head-grid" aria-labelledby=${`${id}-${index}`}>
      <thead><tr><td></td>${view.layers[0].heads.map((head) => html`<th scope="col">H${head.head}</th>`)}</tr></thead>
      <tbody>${view.layers.map((layer) => html`<tr key=${layer.name}>
        <th scope="row">${layer.name}</th>
        ${layer.heads.map((head) => html`<td key=${head.name}><${Head} head=${{ ...head, layer: layer.name }}
          chosen=${head.name === chosen} ...${{ coloring, effects, range, theme, onChoose }} inspection=${answer.id} /></td>`)}
      </tr>`)}</tbody>
    </table></div>`)}
  </div>`;
}
