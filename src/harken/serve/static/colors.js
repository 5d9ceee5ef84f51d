/** Colors of both themes. The scales are those of harken.report.palette: position = sqrt(weight). */

const LEVELS = 64;
export const THEMES = {
  light: {
    background: "#ffffff", text: "#1b1e23", muted: "#5d6672", rule: "#dde1e6", accent: "#1d5fa6", highlight: "#b85c00",
    scale: ["#f3f5f4", "#c3dfdf", "#6db1c6", "#2b70a8", "#122c5c"],
    diverging: ["#1d5fa6", "#f3f5f4", "#b05206"],
  },
  dark: {
    background: "#14171c", text: "#e4e6e8", muted: "#9aa3af", rule: "#333a44", accent: "#82b7ee", highlight: "#f0a04b",
    scale: ["#1e232b", "#22436c", "#2b7f99", "#7cc39b", "#f6f0b4"],
    diverging: ["#82b7ee", "#1e232b", "#f0a04b"],
  },
};

const darkScreen = matchMedia("(prefers-color-scheme: dark)");

/** Return the colors of the theme in use: the chosen one, or the system's. */
export function themeColors() {
  const chosen = document.documentElement.dataset.theme;
  return THEMES[chosen || (darkScreen.matches ? "dark" : "light")];
}

/** Call a function when the system changes its theme. */
export function onSystemTheme(listener) {
  darkScreen.addEventListener("change", listener);
  return () => darkScreen.removeEventListener("change", listener);
}

function channels(color) {
  return [1, 3, 5].map((start) => parseInt(color.slice(start, start + 2), 16));
}

/** Return the color at a position from 0 to 1 between equally spaced anchors, as [red, green, blue]. */
export function interpolate(anchors, position) {
  const scaled = Math.min(Math.max(position, 0), 1) * (anchors.length - 1);
  const index = Math.min(Math.floor(scaled), anchors.length - 2);
  const [from, to] = [channels(anchors[index]), channels(anchors[index + 1])];
  return from.map((value, channel) => Math.round(value + (to[channel] - value) * (scaled - index)));
}

const tables = new Map();

/** Return LEVELS colors as little-endian RGBA words. */
function table(anchors) {
  if (!tables.has(anchors)) {
    const words = new Uint32Array(LEVELS);
    for (let level = 0; level < LEVELS; level++) {
      const [red, green, blue] = interpolate(anchors, level / (LEVELS - 1));
      words[level] = (255 << 24) | (blue << 16) | (green << 8) | red;
    }
    tables.set(anchors, words);
  }
  return tables.get(anchors);
}

/** Return a weight's position on the color scale. */
export function colorPosition(weight) {
  return Math.sqrt(Math.min(Math.max(weight, 0), 1));
}

/** Return the CSS color of a weight. */
export function weightColor(weight, anchors) {
  return `rgb(${interpolate(anchors, colorPosition(weight)).join(" ")})`;
}

/** Return a weights matrix as an image with one pixel per weight. */
export function heatImage(matrix, anchors) {
  const image = new ImageData(matrix.columns, matrix.rows);
  const pixels = new Uint32Array(image.data.buffer);
  const words = table(anchors);
  for (let index = 0; index < pixels.length; index++) {
    pixels[index] = words[Math.round(colorPosition(matrix.values[index]) * (LEVELS - 1))];
  }
  return image;
}

/** Return black or white, whichever is readable on a background [red, green, blue]. */
export function readableOn([red, green, blue]) {
  const [r, g, b] = [red, green, blue].map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}
