/** Attention over sound and pictures: a spectrogram with a playhead, a heat overlay on an image. */
import { useEffect, useRef } from "./vendor/preact-hooks.js";
import { getFloats, useFetched } from "./api.js";
import { interpolate, themeColors } from "./colors.js";
import { html } from "./html.js";

const GRAY = ["#101418", "#f4f4f4"]; // spectrograms do not share the palette of weights
const HEAT = [255, 120, 0]; // visible on dark and on light pictures
const AXIS = 46; // pixels left of the spectrogram

function spectrogramImage(values, { frames, bins }) {
  const image = new ImageData(frames, bins);
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  for (let frame = 0; frame < frames; frame++) {
    for (let bin = 0; bin < bins; bin++) {
      const level = interpolate(GRAY, (values[frame * bins + bin] - low) / (high - low || 1))[0];
      const at = 4 * ((bins - 1 - bin) * frames + frame);
      image.data.set([level, level, level, 255], at);
    }
  }
  const canvas = new OffscreenCanvas(frames, bins);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function drawSound(canvas, sound, spectrogram, weights, groups, time) {
  const scale = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  [canvas.width, canvas.height] = [width * scale, height * scale];
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const colors = themeColors();
  const plot = { width: width - AXIS, height: height - 54, heat: height - 50 };
  const seconds = sound.frames * sound.frame_seconds;
  const x = (second) => AXIS + (second / seconds) * plot.width;
  context.imageSmoothingEnabled = true;
  context.drawImage(spectrogram, AXIS, 0, plot.width, plot.height);
  const most = Math.max(...weights, 1e-9);
  weights.forEach((weight, index) => {
    const first = sound.first_state_seconds + (groups[index][0] - 0.5) * sound.state_seconds;
    const last = sound.first_state_seconds + (groups[index].at(-1) + 0.5) * sound.state_seconds;
    context.fillStyle = colors.rule;
    context.fillRect(x(first), plot.heat, x(last) - x(first) + 0.5, 22);
    context.fillStyle = colors.accent;
    const bar = (22 * weight) / most;
    context.fillRect(x(first), plot.heat + 22 - bar, x(last) - x(first) + 0.5, bar);
  });
  context.fillStyle = colors.muted;
  context.font = "11px system-ui, 'Liberation Sans', sans-serif";
  const every = [0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60].find((step) => (step / seconds) * plot.width > 50) ?? 120;
  for (let second = 0; second <= seconds; second += every) {
    context.textAlign = second === 0 ? "left" : "center";
    context.fillText(`${Number(second.toFixed(1))} s`, Math.min(x(second), width - 12), height - 8);
  }
  context.textAlign = "right";
  context.fillText(`mel ${sound.bins}`, AXIS - 3, 10);
  context.fillText("mel 1", AXIS - 3, plot.height);
  context.fillStyle = colors.highlight;
  context.fillRect(x(time) - 1, 0, 2, plot.heat + 22);
}

/** Spectrogram, weights of the selected query over time (scaled to their maximum), and player. */
export function SoundOverlay({ sound, url, weights, groups, theme }) {
  const canvas = useRef(null);
  const player = useRef(null);
  const { value } = useFetched(
    async (signal) => sound.url && spectrogramImage(await getFloats(sound.url, signal), sound),
    [sound.url],
  );
  useEffect(() => {
    if (!value) return undefined;
    let frame = 0;
    const draw = () => {
      drawSound(canvas.current, sound, value, weights, groups, player.current?.currentTime ?? 0);
      if (player.current && !player.current.paused) frame = requestAnimationFrame(draw);
    };
    draw();
    const media = player.current;
    const observer = new ResizeObserver(draw);
    observer.observe(canvas.current);
    for (const name of ["play", "seeked", "pause"]) media?.addEventListener(name, draw);
    return () => {
      cancelAnimationFrame(frame);
      observer.disconnect();
      for (const name of ["play", "seeked", "pause"]) media?.removeEventListener(name, draw);
    };
  }, [value, weights, theme]);
  const seek = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const share = (event.clientX - box.left - AXIS) / (box.width - AXIS);
    if (player.current) player.current.currentTime = Math.max(0, share) * sound.frames * sound.frame_seconds;
  };
  return html`<div class="sound">
    <canvas ref=${canvas} role="img" aria-label="Spectrogram with the attention of the selected query over time" onClick=${seek}></canvas>
    ${url && html`<audio ref=${player} src=${url} controls aria-label="Input sound"></audio>`}
  </div>`;
}

/** The image that the model read, with a color where the selected query attends (scaled to the maximum). */
export function PictureOverlay({ picture, weights, groups, label, theme }) {
  const canvas = useRef(null);
  const { value: image } = useFetched(async () => {
    const element = new Image();
    element.src = picture.url;
    await element.decode();
    return element;
  }, [picture.url]);
  useEffect(() => {
    if (!image) return;
    const { columns, rows, offset, stride, width, height } = picture;
    Object.assign(canvas.current, { width, height });
    const context = canvas.current.getContext("2d");
    context.drawImage(image, 0, 0, width, height);
    const heat = new ImageData(columns, rows);
    const most = Math.max(...weights, 1e-9);
    weights.forEach((weight, index) => {
      for (const cell of groups[index]) heat.data.set([...HEAT, (180 * weight) / most], 4 * cell);
    });
    const layer = new OffscreenCanvas(columns, rows);
    layer.getContext("2d").putImageData(heat, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(layer, offset - stride / 2, offset - stride / 2, columns * stride, rows * stride);
  }, [image, weights, theme]);
  return html`<canvas class="picture" ref=${canvas} role="img" aria-label=${`Input image with the attention of ${label}`}></canvas>`;
}
