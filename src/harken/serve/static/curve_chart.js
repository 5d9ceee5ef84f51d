/** Curves of a run as SVG: training loss on a logarithmic axis, dev values as points. */
import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";
import { html } from "./html.js";

const HEIGHT = 220;
const MARGIN = { left: 52, right: 14, top: 10, bottom: 26 };

function useWidth() {
  const element = useRef(null);
  const [width, setWidth] = useState(600);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(entry.contentRect.width));
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return [element, width];
}

/** Return about four round values between two limits. */
export function ticks(low, high, logarithmic) {
  if (logarithmic) {
    const values = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const digit of [1, 2, 5]) values.push(digit * 10 ** power);
    }
    const inside = values.filter((value) => value >= low && value <= high);
    if (inside.length >= 2) return inside;
  }
  const rough = (high - low) / 4 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= rough);
  const values = [];
  for (let index = Math.ceil(low / step); index * step <= high + step * 1e-9; index++) values.push(Number((index * step).toPrecision(12)));
  return values;
}

/** `points`: [{step, value}]. */
export function Chart({ title, points, last, logarithmic, dots }) {
  const [element, width] = useWidth();
  const values = points.map((point) => point.value);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  const isLog = logarithmic && low > 0;
  if (low === high) [low, high] = isLog ? [low / 2, high * 2] : [low - 1, high + 1];
  const scale = isLog ? Math.log : (value) => value;
  const plot = { width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
  const x = (step) => MARGIN.left + (step / last) * plot.width;
  const y = (value) => MARGIN.top + plot.height * (1 - (scale(value) - scale(low)) / (scale(high) - scale(low)));
  const path = points.map((point, index) => `${index ? "L" : "M"}${x(point.step).toFixed(1)} ${y(point.value).toFixed(1)}`).join("");
  const newest = points.at(-1);
  const summary = `${title}: ${newest.value.toPrecision(4)} at step ${newest.step}`;
  return html`<figure class="chart" ref=${element}>
    <figcaption>${title}${isLog ? " (log axis)" : ""} <span class="muted">${newest.value.toPrecision(4)} at step ${newest.step}</span></figcaption>
    <svg width=${width} height=${HEIGHT} role="img" aria-label=${summary}>
      ${ticks(low, high, isLog).map((value) => html`<line class="rule" x1=${MARGIN.left} x2=${width - MARGIN.right} y1=${y(value)} y2=${y(value)} />
        <text x=${MARGIN.left - 6} y=${y(value) + 4} text-anchor="end">${value}</text>`)}
      ${ticks(0, last, false).map((step) => html`<text x=${x(step)} y=${HEIGHT - 8} text-anchor="middle">${step}</text>`)}
      <path class="curve" d=${path} />
      ${dots && points.map((point) => html`<circle cx=${x(point.step)} cy=${y(point.value)} r="3.5"><title>step ${point.step}: ${point.value.toPrecision(4)}</title></circle>`)}
    </svg>
  </figure>`;
}
