/** The workbench: four views, their navigation and the theme. */
import { render } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";
import { onSystemTheme } from "./colors.js";
import { CompareView } from "./compare_view.js";
import { ExamplesView } from "./examples_view.js";
import { html } from "./html.js";
import { InspectView } from "./inspect_view.js";
import { RunsView } from "./runs_view.js";
import { address, useAddress } from "./url_state.js";

const PAGES = {
  runs: ["Runs", RunsView],
  examples: ["Examples", ExamplesView],
  inspect: ["Inspect", InspectView],
  compare: ["Compare", CompareView],
};
const KEYS = [
  ["←  →", "previous or next head"],
  ["Shift ↑  ↓", "head of the previous or next layer"],
  ["↑  ↓", "previous or next query"],
  ["x", "switch the head off or on"],
  ["m  l  t", "map, lines, text"],
  ["z", "zoom into a large map; the wheel moves it"],
  ["c", "next coloring of the grid"],
  ["/", "go to the input"],
  ["Esc", "unlock the query, or leave the input"],
];

function useTheme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "system");
  const [, setSystem] = useState(0);
  useEffect(() => onSystemTheme(() => setSystem((value) => value + 1)), []);
  const choose = (next) => {
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("theme", next);
    } catch {
      // Without storage the choice lasts until the page is closed.
    }
    setTheme(next);
  };
  const dark = theme === "dark" || (theme === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  return [theme, dark ? "dark" : "light", choose];
}

function Keys() {
  const dialog = useRef(null);
  return html`<button type="button" onClick=${() => dialog.current.showModal()}>Keys</button>
    <dialog ref=${dialog} aria-label="Keyboard"><table><caption>Keyboard</caption><tbody>
      ${KEYS.map(([key, action]) => html`<tr><th scope="row"><kbd>${key}</kbd></th><td>${action}</td></tr>`)}
    </tbody></table><form method="dialog"><button>Close</button></form></dialog>`;
}

function App() {
  const { page, params } = useAddress();
  const [theme, colors, chooseTheme] = useTheme();
  const [title, View] = PAGES[page] ?? PAGES.runs;
  useEffect(() => {
    document.title = `${title} · Harken`;
  }, [title]);
  return html`<header>
      <h1>Harken</h1>
      <nav aria-label="Views">${Object.entries(PAGES).map(([key, [name]]) => html`
        <a key=${key} href=${address(key, params.run ? { run: params.run } : {})} aria-current=${name === title ? "page" : undefined}>${name}</a>`)}
      </nav>
      <${Keys} />
      <label><span class="visually-hidden">Theme</span><select value=${theme} onChange=${(event) => chooseTheme(event.target.value)}>
        <option value="system">system theme</option><option value="light">light</option><option value="dark">dark</option>
      </select></label>
    </header>
    <main><${View} params=${params} theme=${colors} /></main>`;
}

render(html`<${App} />`, document.body);
