/** Which tokens of a view are shown, and how: merged into words, without special tokens. */
import { merge } from "./weights.js";

/** Return the text of a word's tokens: the marks of subword tokenizers at the word's start and inside it are removed. */
function wordText(tokens) {
  return tokens.map((token) => token.replace(/^(▁|Ġ|##| )/, "")).join("").replace(/<\/w>$/, "") || tokens.join("");
}

/** Return groups of token indices: one per token, or one per word. */
function groups(tokens, words, special, { merged, hidden }) {
  const found = [];
  let last = null;
  tokens.forEach((_, index) => {
    if (hidden && special[index]) return;
    const word = merged && !special[index] ? words[index] : null;
    if (word !== null && word === last) found.at(-1).push(index);
    else found.push([index]);
    last = word;
  });
  return found;
}

/** Return the groups of query tokens that are shown. */
export function queryGroups(view, options) {
  return groups(view.queries, view.query_words, view.query_special, options);
}

/** Return whether merging and hiding tokens change a view. */
export function hasOptions(view) {
  const repeats = (words) => words.some((word, index) => index && word !== null && word === words[index - 1]);
  return {
    words: repeats(view.query_words) || repeats(view.key_words),
    special: [...view.query_special, ...view.key_special].some(Boolean),
  };
}

/** Return which tokens are merged and hidden. */
export function tokenOptions(params) {
  return { merged: params.words === "1", hidden: params.special === "0" };
}

/** Return a view's weights and labels as they are shown: {matrix, queries, keys, rowGroups, columnGroups}. */
export function shownWeights(view, matrix, options) {
  const rowGroups = queryGroups(view, options);
  const columnGroups = groups(view.keys, view.key_words, view.key_special, options);
  const label = (tokens) => (group) => (group.length > 1 ? wordText(group.map((index) => tokens[index])) : tokens[group[0]]);
  const unchanged = rowGroups.length === view.queries.length && columnGroups.length === view.keys.length;
  return {
    matrix: unchanged ? matrix : merge(matrix, rowGroups, columnGroups),
    queries: rowGroups.map(label(view.queries)),
    keys: columnGroups.map(label(view.keys)),
    rowGroups,
    columnGroups,
  };
}

/** Return the shown row that contains a token, or null if it is hidden. */
export function rowWithToken(rowGroups, token) {
  const row = rowGroups.findIndex((group) => group.includes(token));
  return row < 0 ? null : row;
}
