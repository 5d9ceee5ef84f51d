/** Numbers as texts. */

export function percent(probability) {
  if (probability === null || probability === undefined) return "–";
  const value = 100 * probability;
  if (value > 0 && value < 0.0001) return `${value.toExponential(1).replace("-", "−")} %`;
  if (value > 0 && value < 0.01) return `${value.toFixed(4)} %`;
  return `${value.toFixed(value < 10 && value < 99.95 ? 2 : 1)} %`;
}

export function signed(value, digits = 3) {
  const text = Math.abs(value).toFixed(digits);
  if (Number(text) === 0) return text;
  return `${value < 0 ? "−" : "+"}${text}`;
}

export function count(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1e9) return `${(value / 1e9).toFixed(1)} B`;
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e3) return `${(value / 1e3).toFixed(1)} K`;
  return String(value);
}
