/**
 * The one seam to the server: every answer on the page comes through `ask`.
 *
 * The self-contained file (`explore --html`) puts another module with these same exports in this one's place.
 */

const FIRST_WAIT_MS = 150;
const LONGEST_WAIT_MS = 1000;

/** What the server, or the way to it, refused: one sentence to show. */
export class ApiError extends Error {}

/**
 * Ask the API; an answer that is still being computed (202) is asked for again until it is there.
 *
 * @param {string} path "table", "walk", …
 * @param {Object<string, any>} [params] undefined, null and "" are left out; an array repeats its key
 * @param {{signal?: AbortSignal, progress?: (fraction: ?number) => void}} [options]
 * @returns {Promise<any>} the JSON document
 */
export async function ask(path, params = {}, { signal, progress } = {}) {
  let wait = FIRST_WAIT_MS;
  for (;;) {
    const response = await request(`api/${path}?${query(params)}`, signal);
    const answer = await jsonOf(response);
    signal?.throwIfAborted(); // an answer that comes after that is none
    if (!response.ok) throw new ApiError(answer?.error ?? `The server answered ${response.status}.`);
    if (response.status !== 202) return answer;
    progress?.(answer.fraction ?? null);
    await pause(wait, signal);
    wait = Math.min(wait * 1.5, LONGEST_WAIT_MS);
  }
}

/** @returns {Promise<any>} plotly, loaded when a map is first drawn: the other views never need it */
export function loadPlotly() {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "plotly.js";
    const restore = withoutStyles();
    script.onload = () => {
      restore();
      resolve(window.Plotly);
    };
    script.onerror = () => {
      restore();
      script.remove(); // so that the next try loads it anew
      reject(
        new ApiError("The map is drawn by plotly, which is not installed: pip install plotly scikit-learn"),
      );
    };
    document.head.append(script);
  });
}

/**
 * While it loads, plotly adds a style sheet for maps of the earth, which nothing here draws and which the page's
 * policy refuses, loudly: it gets an element that styles nothing.
 *
 * @returns {() => void} puts things back
 */
function withoutStyles() {
  const create = document.createElement;
  document.createElement = (tag, ...more) =>
    create.call(document, tag === "style" ? "template" : tag, ...more);
  return () => delete document.createElement;
}

function query(params) {
  const pairs = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one === undefined || one === null || one === "") continue;
      pairs.append(key, one === true ? "1" : one === false ? "0" : String(one));
    }
  }
  return pairs.toString();
}

async function request(url, signal) {
  try {
    return await fetch(url, { signal, headers: { Accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer; is `tokenspace explore` still running?");
  }
}

async function jsonOf(response) {
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return null;
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("no longer needed", "AbortError"));
    });
  });
}
