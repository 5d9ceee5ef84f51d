/** Templates: preact's elements in the syntax of htm. */
import { createElement } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(createElement);
