/**
 * What the page shows, kept in its address: back, forward, reload and a sent link give the same page.
 *
 * A deliberate act (another view, text, query) makes an entry in the history; a step within it replaces the
 * entry, so that Back leaves the walk rather than walking it backwards.
 */

const listeners = new Set();
const remembered = new Map(); // view -> its own part of the address, for when one comes back to it

/** @returns {Object<string, string>} the state: `view` and what that view added; no empty value */
export function state() {
  return Object.fromEntries([...new URLSearchParams(location.search)].filter(([, value]) => value !== ""));
}

/**
 * Change some of the state; null or "" takes a key out.
 *
 * @param {Object<string, ?(string|number|boolean)>} changes
 * @param {{replace?: boolean, quiet?: boolean}} [how] `quiet` tells no listener
 */
export function setState(changes, { replace = false, quiet = false } = {}) {
  const next = { ...state(), ...changes };
  for (const [key, value] of Object.entries(next))
    if (value === null || value === undefined || value === "") delete next[key];
  const before = location.search;
  const search = address(next);
  if (search !== before) {
    if (replace) history.replaceState(null, "", search);
    else history.pushState(null, "", search);
  }
  if (!quiet && search !== before) tell();
}

/** The address of `view` as it was last left. */
export function addressOf(view) {
  return remembered.get(view) ?? address({ view });
}

/** Go to `view` as it was last left. */
export function showView(view) {
  remember();
  if (state().view === view) return;
  history.pushState(null, "", addressOf(view));
  tell();
}

/** @param {(state: Object<string, string>) => void} listener called after each change, Back and Forward too */
export function onState(listener) {
  listeners.add(listener);
}

function remember() {
  const { view = "walk" } = state();
  remembered.set(view, location.search || address({ view }));
}

function address(values) {
  const { view = "walk", ...rest } = values;
  return `?${new URLSearchParams({ view, ...rest })}`;
}

function tell() {
  remember();
  const now = state();
  for (const listener of listeners) listener(now);
}

window.addEventListener("popstate", tell);
