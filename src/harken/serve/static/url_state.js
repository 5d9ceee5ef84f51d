/** The state of the workbench is the address: #/PAGE?KEY=VALUE… The part after # is never sent to the server. */
import { useEffect, useState } from "./vendor/preact-hooks.js";

const WRITE_DELAY = 100; // milliseconds; browsers limit the number of changes of the address
const listeners = new Set();
let current = parse(location.hash);
let timer = null;

/** Return {page, params} of an address. */
export function parse(hash) {
  const [, page, query = ""] = hash.match(/^#?\/?([^?]*)\??([^]*)$/);
  return { page: page || "runs", params: Object.fromEntries(new URLSearchParams(query)) };
}

/** Return the address of a page; parameters that are empty are left out. */
export function address(page, params = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "") query.set(key, String(value));
  }
  const text = query.toString();
  return `#/${page}${text ? `?${text}` : ""}`;
}

function write(change) {
  clearTimeout(timer);
  timer = null;
  const hash = address(current.page, current.params);
  if (hash !== location.hash) history[change](null, "", hash);
}

function notify() {
  for (const listener of listeners) listener(current);
}

/** Change parameters of the page; undefined removes one. */
export function setParams(changes) {
  current = { page: current.page, params: { ...current.params, ...changes } };
  for (const [key, value] of Object.entries(changes)) if (value === undefined) delete current.params[key];
  timer ??= setTimeout(() => write("replaceState"), WRITE_DELAY);
  notify();
}

/** Open a page; the back button returns. */
export function open(page, params) {
  if (timer) write("replaceState");
  current = parse(address(page, params));
  write("pushState");
  notify();
}

function read() {
  clearTimeout(timer);
  timer = null;
  current = parse(location.hash);
  notify();
}
addEventListener("popstate", read);
addEventListener("hashchange", read);

/** Return the current {page, params}; the component is drawn again when they change. */
export function useAddress() {
  const [state, setState] = useState(current);
  useEffect(() => {
    listeners.add(setState);
    setState(current);
    return () => listeners.delete(setState);
  }, []);
  return state;
}
