/** Keys that work in every view with attention. */
import { useEffect, useRef } from "./vendor/preact-hooks.js";
import { allHeads, COLORINGS } from "./head_grid.js";
import { chosenHead, toggled } from "./inspection.js";
import { queryGroups, rowWithToken, tokenOptions } from "./tokens.js";

const VIEWS = { m: "map", l: "lines", t: "text" };
const COLOR_KEYS = Object.keys(COLORINGS);

function isTyping(target) {
  return target.matches?.("input:not([type=checkbox]), textarea, select, audio");
}

/** Return the name of the head `step` further in its layer, or `down` layers further in the grid. */
function neighbor(answer, head, step, down) {
  const heads = allHeads(answer);
  if (step) return heads[heads.findIndex((other) => other.name === head.name) + step]?.name;
  const layers = [...new Set(heads.map((other) => other.layer))];
  const layer = heads.filter((other) => other.layer === layers[layers.indexOf(head.layer) + down]);
  return layer[Math.min(head.head, layer.length) - 1]?.name;
}

/** Handle keys for one column: {answer, params, off, onChange, onOff}. `off` lists its disabled heads. */
export function useKeys(state) {
  const latest = useRef(state);
  latest.current = state; // a key can be pressed before the effects of the last drawing have run
  useEffect(() => {
    const press = (event) => {
      const { answer, params, off, onChange, onOff } = latest.current;
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (event.key === "Escape") {
        if (isTyping(event.target)) event.target.blur();
        else onChange({ query: undefined });
        return;
      }
      if (isTyping(event.target)) return;
      if (event.key === "/") {
        event.preventDefault();
        document.getElementById("input")?.focus();
        return;
      }
      const head = answer && chosenHead(answer, params.head);
      if (!head) return;
      if (event.key in VIEWS) onChange({ view: VIEWS[event.key] });
      else if (event.key === "x") onOff(toggled(off, head.name));
      else if (event.key === "z") onChange({ zoom: params.zoom === "1" ? undefined : "1" });
      else if (event.key === "c") onChange({ color: COLOR_KEYS[(COLOR_KEYS.indexOf(params.color ?? "pattern") + 1) % COLOR_KEYS.length] });
      else if (event.key === "ArrowLeft" || event.key === "ArrowRight" || (event.shiftKey && event.key.startsWith("Arrow"))) {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0;
        const name = neighbor(answer, head, step, event.key === "ArrowUp" ? -1 : 1);
        event.preventDefault();
        if (name) {
          onChange({ head: name });
          const focused = document.activeElement?.dataset.head;
          if (focused) requestAnimationFrame(() => document.querySelector(`[data-head="${name}"]`)?.focus());
        }
      } else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
        const groups = queryGroups(answer.views[head.view], tokenOptions(params));
        const token = params.query ? Number(params.query) - 1 : answer.focus?.view === head.view ? answer.focus.query : 0;
        const row = (rowWithToken(groups, token) ?? 0) + (event.key === "ArrowUp" ? -1 : 1);
        event.preventDefault();
        onChange({ query: groups[Math.min(Math.max(row, 0), groups.length - 1)][0] + 1 });
      }
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
}
