/** Requests to the server and hooks that keep their answers. */
import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";

const TAB = crypto.randomUUID?.() ?? String(Math.random()).slice(2); // the server stops older requests of one client
const MAX_RETRIES = 5;

export class ApiError extends Error {
  constructor(status, { type = "internal", message = "the server did not answer", fix = "" } = {}) {
    super(message);
    Object.assign(this, { status, type, fix });
  }
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { message: "the server does not answer", fix: "check that harken serve is running" });
  }
  if (!response.ok) {
    const body = await response.json().catch(() => ({}));
    const error = new ApiError(response.status, body.error);
    error.retryAfter = Number(response.headers.get("Retry-After")) || 1;
    throw error;
  }
  return response;
}

/** Return the JSON of a GET request. */
export async function getJSON(path, signal) {
  return (await request(path, { signal })).json();
}

/** Return a matrix of weights, or several of equal size: {values, maps, rows, columns}. */
export async function getMatrix(path, signal) {
  const response = await request(path, { signal });
  const [rows, columns] = ["X-Rows", "X-Columns"].map((name) => Number(response.headers.get(name)));
  const values = new Float32Array(await response.arrayBuffer());
  return { values, rows, columns, maps: Number(response.headers.get("X-Maps") ?? 1) };
}

/** Return float32 values. */
export async function getFloats(path, signal) {
  return new Float32Array(await (await request(path, { signal })).arrayBuffer());
}

/** Send an inspect request; when the server is busy, send it again after the time it asks for. */
export async function inspect(run, body, { signal, client }) {
  const options = {
    method: "POST",
    signal,
    headers: { "Content-Type": "application/json", "X-Harken-Client": `${TAB}-${client}` },
    body: JSON.stringify(body),
  };
  for (let attempt = 0; ; attempt++) {
    try {
      return await (await request(`/api/runs/${run}/inspect`, options)).json();
    } catch (error) {
      if (error.status !== 503 || attempt === MAX_RETRIES) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1000 * error.retryAfter));
      signal?.throwIfAborted();
    }
  }
}

/** Upload a sound or image and return the inspection of it. */
export async function upload(run, blob) {
  const headers = { "Content-Type": blob.type || "application/octet-stream", "X-Harken-Client": `${TAB}-upload` };
  return (await request(`/api/runs/${run}/inspect`, { method: "POST", headers, body: blob })).json();
}

/** Return {value, error, loading} of an asynchronous function; the last value stays until the next one arrives. */
export function useFetched(load, keys, { delay = 0 } = {}) {
  const [state, setState] = useState({ value: null, error: null, loading: true });
  const newest = useRef(0);
  useEffect(() => {
    const number = ++newest.current;
    const controller = new AbortController();
    const isNewest = () => number === newest.current;
    setState((before) => ({ ...before, loading: true }));
    const timer = setTimeout(async () => {
      try {
        const value = await load(controller.signal);
        if (isNewest()) setState({ value, error: null, loading: false });
      } catch (error) {
        const replaced = error.name === "AbortError" || error.type === "superseded";
        if (isNewest() && !replaced) setState({ value: null, error, loading: false });
      }
    }, delay);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, keys);
  return state;
}

/** Listen to server-sent events with {NAME: function(data)}; the caller closes the returned source. */
export function listen(path, handlers) {
  const source = new EventSource(path);
  for (const [name, handler] of Object.entries(handlers)) {
    source.addEventListener(name, (event) => handler(JSON.parse(event.data)));
  }
  return source;
}
