/** Words of an output that differ from another text. */
import { html } from "./html.js";

/** Return [[text, differs]] of the words of an output; words outside the longest common subsequence differ. */
function differingWords(expected, output) {
  const [first, second] = [expected.split(" "), output.split(" ")];
  const common = Array.from({ length: first.length + 1 }, () => new Uint16Array(second.length + 1));
  for (let i = first.length - 1; i >= 0; i--) {
    for (let j = second.length - 1; j >= 0; j--) {
      common[i][j] = first[i] === second[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const parts = [];
  for (let i = 0, j = 0; j < second.length; ) {
    if (i < first.length && first[i] === second[j] && common[i][j] === common[i + 1][j + 1] + 1) {
      parts.push([second[j++], false]);
      i++;
    } else if (i < first.length && common[i + 1][j] >= common[i][j + 1]) i++;
    else parts.push([second[j++], true]);
  }
  return parts;
}

/** An output with the words marked that differ from a reference, which can be null. */
export function MarkedOutput({ reference, output }) {
  if (reference === null || reference === output) return output;
  return differingWords(reference, output).map(([word, differs]) => (differs ? html`<mark>${word}</mark> ` : `${word} `));
}
