"use strict";
// Interactive attention maps. The page is complete without this script.
{
  const UNIT = 10000; // as in text_attention.py
  const MIN_SHOWN = 0.05; // as in text_attention.html
  const THRESHOLDS = [0.02, 0.05, 0.1, 0.2, 0.5]; // as in text_attention.py
  const LINES_PER_QUERY = 4;
  const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

  const unpack = async (packed) => {
    const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint16Array(await new Response(stream).arrayBuffer());
  };

  const clamp = (value, count) => Math.min(Math.max(value, 0), count - 1);

  // Tokens are untrusted, so they are copied as nodes, never as HTML.
  const bdi = (label) => label.querySelector("bdi").cloneNode(true);

  const activate = (figure) => {
    const find = (selector) => figure.querySelector(selector);
    const findAll = (selector) => [...figure.querySelectorAll(selector)];
    const map = find(".map"), cells = find(".cells"), cursor = find(".cursor");
    const queries = findAll(".queries li"), keys = findAll(".keys li");
    const smalls = findAll(".small");
    const strips = { head: findAll(".strips .head > span"), mean: findAll(".strips .mean > span") };
    const strongest = findAll(".strongest tbody tr");
    const sides = find(".sides"), from = findAll(".from li"), to = findAll(".to li");

    const weightsOf = (small) => (small.unpacked ??= unpack(small.dataset.weights));
    const toggle = (elements, name, test) =>
      elements.forEach((element, i) => element.classList.toggle(name, test(element, i)));

    let chosen = find(".small.chosen");
    let weights = null; // of the chosen head
    let layer = []; // weights of all heads of its layer
    let query = queries.length - 1; // selected for the strips
    let cell = [query, 0]; // the selected cell

    const rowOf = (head, row) => head.subarray(row * keys.length, (row + 1) * keys.length);
    const peak = (row) => {
      const values = rowOf(weights, row);
      return values.indexOf(Math.max(...values));
    };

    const showWeight = (row, column, verb) => {
      const weight = (rowOf(weights, row)[column] / UNIT).toFixed(2);
      const textContent = ` (${row + 1} → ${column + 1})`; // distinguishes equal tokens
      const place = Object.assign(document.createElement("span"), { className: "muted", textContent });
      find(".weight-text").replaceChildren(
        "‘", bdi(queries[row]), `’ ${verb} ‘`, bdi(keys[column]), `’ (${weight})`, place);
    };

    const selectCell = (row, column) => {
      cell = [row, column];
      showWeight(row, column, "attends to");
      cursor.hidden = false;
      cursor.style.setProperty("--row", row);
      cursor.style.setProperty("--column", column);
      toggle(queries, "at", (_, i) => i === row);
      toggle(keys, "at", (_, i) => i === column);
    };

    const showStrip = (spans, row) => {
      spans.forEach((span, i) => {
        span.style.setProperty("--w", Math.sqrt(row[i]).toFixed(3));
        span.querySelector("small").textContent = row[i] >= MIN_SHOWN ? row[i].toFixed(2) : "";
      });
      const strip = spans[0].parentElement; // a long strip scrolls to its largest weight
      strip.scrollTop = spans[row.indexOf(Math.max(...row))].offsetTop - strip.clientHeight / 2;
    };

    const selectQuery = (row) => {
      query = row;
      const shares = (head) => Array.from(rowOf(head, row), (weight) => weight / UNIT);
      const rows = layer.map(shares);
      showStrip(strips.head, shares(weights));
      showStrip(strips.mean, keys.map((_, i) => rows.reduce((sum, r) => sum + r[i], 0) / rows.length));
      find(".strips .query").replaceChildren(bdi(queries[row]));
      find(".strips .last").hidden = row !== queries.length - 1;
      for (const labels of [queries, from]) toggle(labels, "selected", (_, i) => i === row);
      toggle(findAll(".sides path"), "selected", (line) => Number(line.dataset.query) === row);
      const attended = new Set(findAll(".sides path.selected").map((line) => Number(line.dataset.key)));
      toggle(to, "at", (_, i) => attended.has(i));
    };

    const drawLines = () => {
      const limit = LINES_PER_QUERY * queries.length;
      const reaching = (t) => [...weights.keys()].filter((i) => weights[i] >= t * UNIT);
      const threshold = THRESHOLDS.find((t) => reaching(t).length <= limit) ?? THRESHOLDS.at(-1);
      const large = reaching(threshold).sort((a, b) => weights[b] - weights[a]);
      const drawn = large.slice(0, limit).reverse();
      const svg = find(".sides svg");
      svg.replaceChildren(...drawn.map((i) => {
        const line = document.createElementNS(svg.namespaceURI, "path");
        const row = Math.floor(i / keys.length), column = i % keys.length;
        Object.assign(line.dataset, { query: row, key: column });
        line.setAttribute("d", `M0 ${row}.5L100 ${column}.5`);
        line.setAttribute("stroke-opacity", Math.sqrt(weights[i] / UNIT).toFixed(2));
        line.setAttribute("stroke-width", (1 + (2 * weights[i]) / UNIT).toFixed(2));
        return line;
      }));
      const largest = (weights.reduce((a, b) => Math.max(a, b)) / UNIT).toFixed(2);
      const grouped = (list) => list.length.toLocaleString("en").replaceAll(",", "\u202f");
      const which = drawn.length < large.length
        ? `the largest ${grouped(drawn)} of ${grouped(large)} weights` : "every weight";
      find(".caption").textContent = drawn.length ? `${which} of at least ${threshold}`
        : `no weight: the largest is ${largest}, below ${threshold}`;
    };

    const tabTo = (small) => smalls.forEach((other) => { other.tabIndex = other === small ? 0 : -1; });

    const selectHead = async (small) => {
      chosen = small;
      toggle(smalls, "chosen", (other) => other === small);
      smalls.forEach((other) => other.setAttribute("aria-pressed", other === small));
      tabTo(small);
      const siblings = smalls.filter((other) => other.dataset.layer === small.dataset.layer);
      const heads = await Promise.all(siblings.map(weightsOf));
      if (chosen !== small) return; // another head was selected meanwhile
      layer = heads;
      weights = heads[siblings.indexOf(small)];
      const name = small.dataset.name;
      for (const place of findAll(".name, .of-head")) place.textContent = name;
      find(".of-layer").textContent =
        small.closest("tr").querySelector("th").textContent + ", mean over heads";
      find(".cells source").srcset = small.querySelector("source").srcset;
      find(".cells img").src = small.querySelector("img").src;
      find(".cells img").alt = "attention of " + name;
      strongest.forEach((line, row) => {
        line.cells[1].replaceChildren(bdi(keys[peak(row)]));
        line.cells[2].textContent = (rowOf(weights, row)[peak(row)] / UNIT).toFixed(2);
      });
      drawLines();
      selectQuery(query);
      // The selected cell stays the same, so that heads can be compared.
      if (cursor.hidden) showWeight(query, peak(query), "attends most to");
      else selectCell(...cell);
    };

    const cellUnder = (event) => {
      const box = cells.getBoundingClientRect();
      return [
        clamp(Math.floor(((event.clientY - box.top) / box.height) * queries.length), queries.length),
        clamp(Math.floor(((event.clientX - box.left) / box.width) * keys.length), keys.length),
      ];
    };

    smalls.forEach((small) => {
      small.setAttribute("role", "button");
      small.setAttribute("aria-label", small.dataset.name);
      small.title = small.dataset.name;
      small.addEventListener("click", () => selectHead(small));
      small.addEventListener("keydown", (event) => {
        const move = ARROWS[event.key];
        if (event.key === "Enter" || event.key === " ") selectHead(small);
        else if (move) {
          const [row, column] = [small.dataset.layer, small.dataset.head].map((n, i) => +n + move[i]);
          const next = find(`.small[data-layer="${row}"][data-head="${column}"]`);
          if (!next) return;
          tabTo(next);
          next.focus();
        } else return;
        event.preventDefault();
      });
    });

    cells.addEventListener("pointermove", (event) => weights && selectCell(...cellUnder(event)));
    cells.addEventListener("click", (event) => weights && selectQuery(cellUnder(event)[0]));

    const onKeys = (element, description, act) => {
      element.setAttribute("role", "application"); // so that screen readers pass on the arrow keys
      element.setAttribute("aria-roledescription", description);
      element.addEventListener("keydown", (event) => {
        if (!weights || !(event.key in ARROWS || event.key === "Enter")) return;
        event.preventDefault();
        act(ARROWS[event.key]);
      });
    };
    onKeys(map, "attention map", (move) => {
      if (!move) return selectQuery(cell[0]);
      // The first key press only shows the cursor.
      const step = cursor.hidden ? [0, 0] : move;
      selectCell(clamp(cell[0] + step[0], queries.length), clamp(cell[1] + step[1], keys.length));
      map.style.scrollPadding = // the width and height of the sticky labels
        `${find(".keys").offsetHeight}px 8px 8px ${find(".queries").offsetWidth}px`;
      cursor.scrollIntoView({ block: "nearest", inline: "nearest" });
    });

    onKeys(sides, "lines from queries to keys", (move) => {
      if (!move) return;
      if (move[1]) return selectHead(smalls[clamp(smalls.indexOf(chosen) + move[1], smalls.length)]);
      const row = clamp(query + move[0], queries.length);
      selectQuery(row);
      selectCell(row, peak(row));
      from[row].scrollIntoView({ block: "nearest" });
    });
    from.forEach((label, row) => label.addEventListener("click", () => weights && selectQuery(row)));

    find(".hint").hidden = false;
    figure.classList.add("live");
    selectHead(chosen).then(() => {
      // A long map scrolls to the weight in the sentence below it.
      const share = (peak(query) + 0.5) / keys.length;
      map.scrollLeft = share * cells.clientWidth + cells.offsetLeft - map.clientWidth / 2;
      map.scrollTop = map.scrollHeight;
      sides.scrollTop = from[query].offsetTop - sides.clientHeight / 2;
    });
  };

  // Browsers without it cannot unpack the weights, so the page stays static.
  if (typeof DecompressionStream === "function") {
    document.querySelectorAll("figure.attention").forEach(activate);
  }
}
