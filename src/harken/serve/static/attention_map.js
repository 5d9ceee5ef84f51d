/**
 * AttentionMap draws one matrix of attention weights as a map, as lines or as text.
 *
 * Pointing at a query selects its row, a click locks it, Escape unlocks it. The element is a slider over queries:
 * the up and down keys move the selection. Nothing else of the workbench is needed, so static pages can use it too.
 */
import { colorPosition, heatImage, interpolate, onSystemTheme, readableOn, themeColors, weightColor } from "./colors.js";
import { argmax, maxPool, rowOf } from "./weights.js";

const FONT = "12px system-ui, 'Liberation Sans', sans-serif";
const ZOOMED_CELL = 15; // pixels
const MIN_LINE = 0.05; // weights below it have no line

/** Return a token with visible control characters, and spaces at its start and end. */
export function visible(token) {
  const symbol = (letter) => ({ "\n": "↵", "\t": "⇥" })[letter] ?? (letter < " " ? String.fromCharCode(0x2400 + letter.charCodeAt(0)) : "�");
  return token.replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length)).replace(/[\0-\x1f\x7f-\x9f\ufffe\uffff]/g, symbol) || "∅";
}

export class AttentionMap {
  /** `data`: {matrix, queries, keys, name}. `select` is called with a new row, `lock` with a row or null. */
  constructor(container, { select = () => {}, lock = () => {} } = {}) {
    this.container = container;
    this.select = select;
    this.lock = lock;
    this.state = { view: "map", row: null, locked: null, zoom: false, maxHeight: 480 };
    this.pointed = null; // the cell under the pointer
    this.canvas = document.createElement("canvas");
    this.words = document.createElement("div");
    this.words.className = "attention-text";
    this.readout = document.createElement("p");
    this.readout.className = "attention-readout";
    this.surface = document.createElement("div");
    this.surface.className = "attention-surface";
    this.surface.tabIndex = 0;
    this.surface.setAttribute("role", "slider");
    this.surface.setAttribute("aria-orientation", "vertical");
    this.surface.append(this.canvas, this.words);
    container.append(this.surface, this.readout);
    this.surface.addEventListener("pointermove", (event) => this.#point(event));
    this.surface.addEventListener("pointerleave", () => this.#leave());
    this.surface.addEventListener("click", (event) => this.#click(event));
    this.surface.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.surface.addEventListener("keydown", (event) => this.#key(event));
    this.observer = new ResizeObserver(() => this.draw());
    this.removeThemeListener = onSystemTheme(() => this.draw());
    this.observer.observe(container);
  }

  /** Show new data or another state: view, row, locked, zoom, maxHeight. */
  update(data, state = {}) {
    this.data = data;
    if (state.zoom !== this.state.zoom) this.origin = null; // zoom to the selected row
    Object.assign(this.state, state);
    if (this.pointed && this.pointed.row >= data.matrix.rows) this.pointed = null;
    this.draw();
  }

  destroy() {
    this.observer.disconnect();
    this.removeThemeListener();
    this.container.replaceChildren();
  }

  /** The selected query: locked, or pointed at, or chosen by the owner, or the first. */
  get row() {
    const row = this.state.locked ?? this.pointed?.row ?? this.state.row ?? 0;
    return Math.min(row, this.data.matrix.rows - 1);
  }

  draw() {
    if (!this.data || !this.data.matrix.rows || !this.container.clientWidth) return;
    const { view } = this.state;
    this.canvas.hidden = view === "text";
    this.words.hidden = view !== "text";
    this.colors = themeColors();
    if (view === "map") this.#drawMap();
    else if (view === "lines") this.#drawLines();
    else this.#drawText();
    this.#describe();
  }

  #describe() {
    const { matrix, queries, keys, name } = this.data;
    const row = this.row;
    const weights = rowOf(matrix, row);
    const column = this.pointed?.row === row && this.pointed.column !== null ? this.pointed.column : argmax(weights);
    const most = column === argmax(weights) ? "most " : "";
    const text = `‘${visible(queries[row])}’ attends ${most}to ‘${visible(keys[column])}’: ${weights[column].toFixed(3)}`;
    this.readout.textContent = `${text} (${row + 1} → ${column + 1})${this.state.locked === null ? "" : " · locked"}`;
    const values = { valuemin: 1, valuemax: matrix.rows, valuenow: row + 1, valuetext: text, label: `${name}, query` };
    for (const [key, value] of Object.entries(values)) this.surface.setAttribute(`aria-${key}`, String(value));
  }

  #context(width, height) {
    const scale = devicePixelRatio || 1;
    const { canvas } = this;
    const size = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
    [canvas.width, canvas.height] = size;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.font = FONT;
    context.textBaseline = "middle";
    return context;
  }

  /** Return the widest label's width, at most `limit`. */
  #labelWidth(labels, limit) {
    const context = this.canvas.getContext("2d");
    context.font = `bold ${FONT}`;
    let width = 0;
    for (const label of labels) width = Math.max(width, context.measureText(visible(label)).width);
    return Math.min(Math.ceil(width) + 12, limit);
  }

  /** Return the part of the data that a zoomed map shows, and its first row and column. */
  #window(height, total) {
    const { matrix, queries, keys } = this.data;
    const rows = Math.min(matrix.rows, Math.max(4, Math.floor((height - 94) / ZOOMED_CELL)));
    const columns = Math.min(matrix.columns, Math.max(4, Math.floor((total - 134) / ZOOMED_CELL)));
    const row = this.row;
    this.origin ??= { row: row - rows / 2, column: argmax(rowOf(matrix, row)) - columns / 2 };
    const limit = (value, most) => Math.round(Math.min(Math.max(value, 0), most));
    if (!this.pointed) this.origin.row = Math.min(Math.max(this.origin.row, row - rows + 1), row); // keep the selection inside
    this.origin = { row: limit(this.origin.row, matrix.rows - rows), column: limit(this.origin.column, matrix.columns - columns) };
    const [first, start] = [this.origin.row, this.origin.column];
    const values = new Float32Array(rows * columns);
    for (let i = 0; i < rows; i++) {
      values.set(rowOf(matrix, first + i).subarray(start, start + columns), i * columns);
    }
    return { matrix: { values, rows, columns }, queries: queries.slice(first, first + rows), keys: keys.slice(start, start + columns), first, start };
  }

  #drawMap() {
    const whole = { ...this.data, first: 0, start: 0 };
    const { matrix, queries, keys, first, start } = this.state.zoom ? this.#window(this.state.maxHeight, this.container.clientWidth) : whole;
    const total = this.container.clientWidth;
    const left = this.#labelWidth(queries, Math.min(130, total * 0.3));
    const top = this.#labelWidth(keys, 90);
    const cell = {
      width: Math.min(34, (total - left - 4) / matrix.columns),
      height: Math.min(34, Math.max(80, this.state.maxHeight - top - 4) / matrix.rows),
    };
    if (matrix.rows > 1 && matrix.columns / matrix.rows < 3 && matrix.rows / matrix.columns < 3) {
      cell.width = cell.height = Math.min(cell.width, cell.height);
    }
    const [width, height] = [cell.width * matrix.columns, cell.height * matrix.rows];
    const context = this.#context(left + width + 4, top + height + 4);
    this.layout = { left, top, cell, first, start, rows: matrix.rows, columns: matrix.columns };
    this.#heat(context, matrix, left, top, width, height);
    if (cell.width > 5 && cell.height > 5) this.#gridLines(context, matrix, left, top, cell);
    const row = this.row - first;
    const column = this.pointed?.row === this.row && this.pointed.column !== null ? this.pointed.column - start : null;
    this.#labels(context, queries, row, cell.height, (index) => {
      context.textAlign = "right";
      this.#label(context, visible(queries[index]), left - 6, top + (index + 0.5) * cell.height, left - 8);
    });
    this.#labels(context, keys, column ?? argmax(rowOf(this.data.matrix, this.row)) - start, cell.width, (index) => {
      context.save();
      context.translate(left + (index + 0.5) * cell.width, top - 6);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      this.#label(context, visible(keys[index]), 0, 0, top - 8);
      context.restore();
    });
    context.strokeStyle = this.colors.highlight;
    context.lineWidth = 2;
    if (row >= 0 && row < matrix.rows) context.strokeRect(left - 1, top + row * cell.height - 1, width + 2, Math.max(cell.height, 2) + 1);
    if (column !== null) context.strokeRect(left + column * cell.width, top + row * cell.height, cell.width, cell.height);
  }

  #heat(context, matrix, left, top, width, height) {
    const scale = devicePixelRatio || 1;
    const pooled = maxPool(matrix, Math.max(1, height * scale), Math.max(1, width * scale));
    const image = new OffscreenCanvas(pooled.columns, pooled.rows);
    image.getContext("2d").putImageData(heatImage(pooled, this.colors.scale), 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(image, left, top, width, height);
  }

  #gridLines(context, { rows, columns }, left, top, cell) {
    context.fillStyle = this.colors.background;
    for (let i = 1; i < rows; i++) context.fillRect(left, top + i * cell.height - 0.5, columns * cell.width, 1);
    for (let j = 1; j < columns; j++) context.fillRect(left + j * cell.width - 0.5, top, 1, rows * cell.height);
  }

  /** Draw as many labels as there is room for, and always the chosen one. */
  #labels(context, labels, chosen, pitch, draw) {
    const every = Math.max(1, Math.ceil(13 / pitch));
    labels.forEach((_, index) => {
      const near = Math.abs(index - chosen) * pitch < 13;
      if (index !== chosen && (index % every || near && every > 1)) return;
      context.fillStyle = index === chosen ? this.colors.text : this.colors.muted;
      context.font = index === chosen ? `bold ${FONT}` : FONT;
      draw(index);
    });
  }

  #label(context, text, x, y, width) {
    let shown = text;
    while (shown.length > 1 && context.measureText(shown).width > width) {
      shown = `${shown.slice(0, shown.endsWith("…") ? -2 : -1)}…`;
    }
    context.fillText(shown, x, y);
  }

  #drawLines() {
    const { matrix, queries, keys } = this.data;
    const total = Math.min(this.container.clientWidth, 640);
    const side = Math.min(150, total * 0.32);
    const left = this.#labelWidth(queries, side);
    const right = this.#labelWidth(keys, side);
    const most = Math.max(matrix.rows, matrix.columns);
    const pitch = Math.min(20, Math.max(120, this.state.maxHeight - 8) / most);
    const context = this.#context(total, pitch * most + 4);
    this.layout = { left, top: 2, cell: { width: total, height: pitch }, split: total - right };
    const row = this.row;
    const middle = (index) => 2 + (index + 0.5) * pitch;
    const line = (i, j, weight) => {
      const bend = (total - left - right) / 3;
      context.globalAlpha = Math.min(1, 0.12 + 0.88 * weight);
      context.lineWidth = 0.6 + 3 * weight;
      context.beginPath();
      context.moveTo(left, middle(i));
      context.bezierCurveTo(left + bend, middle(i), total - right - bend, middle(j), total - right, middle(j));
      context.stroke();
    };
    const each = (i, draw) => rowOf(matrix, i).forEach((weight, j) => weight >= MIN_LINE && draw(i, j, weight));
    context.strokeStyle = this.colors.accent;
    for (let i = 0; i < matrix.rows; i++) if (i !== row) each(i, (...place) => line(place[0], place[1], place[2] * 0.35));
    context.strokeStyle = this.colors.highlight;
    each(row, line);
    context.globalAlpha = 1;
    this.#labels(context, queries, row, pitch, (index) => {
      context.textAlign = "right";
      this.#label(context, visible(queries[index]), left - 6, middle(index), left - 8);
    });
    this.#labels(context, keys, argmax(rowOf(matrix, row)), pitch, (index) => {
      context.textAlign = "left";
      this.#label(context, visible(keys[index]), total - right + 6, middle(index), right - 8);
    });
  }

  #drawText() {
    const { matrix, queries, keys } = this.data;
    const row = this.row;
    const weights = rowOf(matrix, row);
    const same = queries.length === keys.length && queries.every((query, index) => query === keys[index]);
    const span = (token, index, kind) => {
      const element = document.createElement("span");
      element.textContent = visible(token).replace(/^␣+|␣+$/g, "") || visible(token);
      element.dataset[kind] = index;
      return element;
    };
    const keySpans = keys.map((token, index) => {
      const element = span(token, index, "key");
      const color = interpolate(this.colors.scale, colorPosition(weights[index]));
      element.style.background = weightColor(weights[index], this.colors.scale);
      element.style.color = readableOn(color);
      element.classList.toggle("chosen", same && index === row);
      return element;
    });
    const parts = [];
    if (!same) {
      parts.push(line("Queries", queries.map((token, index) => {
        const element = span(token, index, "query");
        element.classList.toggle("chosen", index === row);
        return element;
      })));
    }
    parts.push(line(same ? "Keys and queries" : "Keys", keySpans));
    this.layout = { same };
    this.words.replaceChildren(...parts);
    this.words.style.maxHeight = `${this.state.maxHeight}px`;

    function line(title, spans) {
      const element = document.createElement("p");
      const heading = document.createElement("small");
      heading.textContent = title;
      element.append(heading, ...spans);
      return element;
    }
  }

  /** Return the query (and in a map the key) at a pointer event, or null. */
  #cellAt(event) {
    if (!this.data || !this.layout) return null;
    const { matrix } = this.data;
    if (this.state.view === "text") {
      const { query, key } = event.target.dataset ?? {};
      if (query !== undefined) return { row: Number(query), column: null };
      if (key === undefined) return null;
      return this.layout.same ? { row: Number(key), column: null } : { row: this.row, column: Number(key) };
    }
    const box = this.canvas.getBoundingClientRect();
    const { left, top, cell, split, first = 0, start = 0, rows = matrix.rows, columns } = this.layout;
    const line = Math.floor((event.clientY - box.top - top) / cell.height);
    const x = event.clientX - box.left;
    if (line < 0 || line >= rows || x > box.width || x < 0) return null;
    const row = line + first;
    if (split !== undefined) return x > split ? null : { row, column: null };
    const column = Math.floor((x - left) / cell.width);
    return { row, column: column >= 0 && column < columns ? column + start : null };
  }

  #point(event) {
    const cell = this.#cellAt(event);
    if (cell?.row === this.pointed?.row && cell?.column === this.pointed?.column) return;
    const before = this.data && this.row;
    this.pointed = cell;
    this.draw();
    if (cell && this.row !== before) this.select(this.row);
  }

  #wheel(event) {
    if (!this.state.zoom || this.state.view !== "map" || !this.origin) return;
    event.preventDefault();
    const [x, y] = event.shiftKey ? [event.deltaY, event.deltaX] : [event.deltaX, event.deltaY];
    this.origin.row += Math.sign(y) * 3;
    this.origin.column += Math.sign(x) * 3;
    this.pointed ??= { row: this.row, column: null }; // the selection may leave the window
    this.draw();
  }

  #leave() {
    if (this.pointed === null) return;
    this.state.row = this.row; // the row stays selected when the pointer leaves
    this.pointed = null;
    this.draw();
  }

  #click(event) {
    const cell = this.#cellAt(event);
    if (cell) this.#lock(cell.row === this.state.locked ? null : cell.row);
  }

  #lock(row) {
    this.state.row = row ?? this.row;
    this.state.locked = row;
    this.draw();
    this.lock(row);
    this.select(this.row);
  }

  #key(event) {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (step && this.data) {
      event.preventDefault();
      event.stopPropagation();
      this.move(step);
    } else if (event.key === "Escape" && this.state.locked !== null) {
      this.#lock(null);
    }
  }

  /** Lock the query `step` rows further down. */
  move(step) {
    this.pointed = null;
    this.#lock(Math.min(Math.max(this.row + step, 0), this.data.matrix.rows - 1));
  }
}
