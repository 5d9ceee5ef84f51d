/** The chosen head as a file: what is shown (words, hidden tokens) is what is saved. */
import { visible } from "./attention_map.js";
import { heatImage, THEMES, weightColor } from "./colors.js";

const CELL = 16;
const FONT = "12px system-ui, 'Liberation Sans', sans-serif";
const COLORS = THEMES.light; // files are usually placed on white

export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function textWidth(texts) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = FONT;
  return Math.ceil(Math.max(0, ...texts.map((text) => context.measureText(visible(text)).width))) + 8;
}

/** Sizes of the drawing; the title needs a line above the key labels. */
function sizes({ matrix, queries, keys }) {
  const [left, top] = [textWidth(queries), textWidth(keys) + 24];
  return { left, top, width: left + matrix.columns * CELL + 8, height: top + matrix.rows * CELL + 8 };
}

function escape(text) {
  return text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
}

/** Return the map as SVG; neighboring cells of one color are one rectangle. */
export function matrixSVG(shown) {
  const { matrix, queries, keys, name } = shown;
  const { left, top, width, height } = sizes(shown);
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" font-size="12">`,
    `<title>${escape(name)}</title><rect width="100%" height="100%" fill="${COLORS.background}"/>`,
    `<text x="4" y="15" font-weight="bold" fill="${COLORS.text}">${escape(name)}</text>`,
  ];
  for (let row = 0; row < matrix.rows; row++) {
    let start = 0;
    for (let column = 1; column <= matrix.columns; column++) {
      const color = weightColor(matrix.values[row * matrix.columns + start], COLORS.scale);
      if (column < matrix.columns && weightColor(matrix.values[row * matrix.columns + column], COLORS.scale) === color) continue;
      parts.push(`<rect x="${left + start * CELL}" y="${top + row * CELL}" width="${(column - start) * CELL}" height="${CELL}" fill="${color}"/>`);
      start = column;
    }
  }
  queries.forEach((text, row) => {
    parts.push(`<text x="${left - 5}" y="${top + (row + 0.5) * CELL + 4}" text-anchor="end" fill="${COLORS.text}">${escape(visible(text))}</text>`);
  });
  keys.forEach((text, column) => {
    const [x, y] = [left + (column + 0.5) * CELL + 4, top - 5];
    parts.push(`<text transform="translate(${x} ${y}) rotate(-90)" fill="${COLORS.text}">${escape(visible(text))}</text>`);
  });
  return new Blob([`${parts.join("\n")}\n</svg>\n`], { type: "image/svg+xml" });
}

/** Return the map as PNG, two pixels per point. */
export function matrixPNG(shown) {
  const { matrix, queries, keys, name } = shown;
  const { left, top, width, height } = sizes(shown);
  const scale = Math.min(2, 8000 / Math.max(width, height));
  const canvas = new OffscreenCanvas(Math.ceil(width * scale), Math.ceil(height * scale));
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.fillStyle = COLORS.background;
  context.fillRect(0, 0, width, height);
  const cells = new OffscreenCanvas(matrix.columns, matrix.rows);
  cells.getContext("2d").putImageData(heatImage(matrix, COLORS.scale), 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(cells, left, top, matrix.columns * CELL, matrix.rows * CELL);
  context.fillStyle = COLORS.text;
  context.font = `bold ${FONT}`;
  context.fillText(name, 4, 15);
  context.font = FONT;
  context.textAlign = "right";
  queries.forEach((text, row) => context.fillText(visible(text), left - 5, top + (row + 0.5) * CELL + 4));
  context.textAlign = "left";
  keys.forEach((text, column) => {
    context.save();
    context.translate(left + (column + 0.5) * CELL + 4, top - 5);
    context.rotate(-Math.PI / 2);
    context.fillText(visible(text), 0, 0);
    context.restore();
  });
  return canvas.convertToBlob({ type: "image/png" });
}

export function matrixJSON({ matrix, queries, keys, name }, answer) {
  const weights = [];
  for (let row = 0; row < matrix.rows; row++) {
    weights.push([...matrix.values.subarray(row * matrix.columns, (row + 1) * matrix.columns)]);
  }
  const content = { head: name, task: answer.task, output: answer.output.text, disabled: answer.disabled, queries, keys, weights };
  return new Blob([`${JSON.stringify(content)}\n`], { type: "application/json" });
}
