/** The page: opens the table, and shows the view that the address names. */

import { corrected, unknown } from "./address.js";
import { ask } from "./api.js";
import { el, fill } from "./dom.js";
import { MapView } from "./map.js";
import { sentence, tell } from "./message.js";
import { count } from "./numbers.js";
import { QueryView } from "./query.js";
import { brief } from "./shown.js";
import { addressOf, onState, setState, showView, state } from "./state.js";
import { WalkView } from "./walk.js";

const VIEWS = { walk: "Walk", map: "Map", query: "Query" };

const views = {};
let opened = null;
let allTokens = null;

/** Every token with its kind and length: megabytes for a large table, so asked for once and when needed. */
function tokens() {
  allTokens ??= ask("tokens").catch((error) => {
    allTokens = null; // so that the next one who needs them asks again
    throw error;
  });
  return allTokens;
}

async function open() {
  const opening = document.getElementById("opening");
  try {
    const table = await ask("table");
    opened = table;
    describe(table);
    views.walk = new WalkView(table, tokens);
    views.map = new MapView(table, tokens);
    views.query = new QueryView(table);
    for (const [name, view] of Object.entries(views)) document.getElementById(name).append(view.node);
    opening.hidden = true;
    onState(show);
    show(state());
  } catch (error) {
    opening.textContent = sentence(error.message);
    opening.classList.add("error");
  }
}

/** The view that the address names, else the first that this table has something to show in. */
function viewOf({ view }) {
  if (Object.hasOwn(VIEWS, view ?? "")) return view;
  if (!opened.walk) return "walk";
  return opened.plotly === false || Math.min(opened.rows, opened.dim) < 2 ? "query" : "map";
}

/** The state without what the page doesn't know, which is said. */
function putRight(asked) {
  const view = viewOf(asked);
  const { changes, message } = corrected({ ...asked, view }, opened);
  const other = asked.view !== undefined && asked.view !== view;
  const said = other ? `${sentence(unknown("view", asked.view, Object.keys(VIEWS)))}; showing ${view}.` : "";
  tell([said, message].filter(Boolean).join(" "));
  if (asked.view === view && !message) return asked;
  setState({ ...changes, view }, { replace: true, quiet: true });
  return state();
}

function show(asked) {
  const now = putRight(asked);
  const current = now.view;
  document.title = `${VIEWS[current]} – ${brief(opened.name, 60)} – tokenspace`;
  for (const link of document.getElementById("views").children) {
    const name = link.dataset.view;
    link.setAttribute("href", addressOf(name));
    if (name === current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const [name, view] of Object.entries(views)) {
    const section = document.getElementById(name);
    if (name !== current && !section.hidden) view.hide();
    section.hidden = name !== current;
  }
  views[current].show(now);
}

function links() {
  const nav = document.getElementById("views");
  fill(
    nav,
    Object.entries(VIEWS).map(([name, text]) => {
      const onclick = (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return; // in a tab of its own
        event.preventDefault();
        showView(name);
      };
      return el("a", { href: addressOf(name), data: { view: name }, onclick }, text);
    }),
  );
}

function describe(table) {
  fill(
    document.getElementById("table-name"),
    el("bdi", {}, brief(table.name, 32)),
    ` ${count(table.rows)} × ${count(table.dim)}`,
  );
  const facts = [
    ["rows", `${count(table.rows)} × ${count(table.dim)}, ${table.dtype}`],
    ["tokens", [table.encoding, table.tokenizer].filter(Boolean).join(", ")],
    ["recipe", table.recipe],
    ...(table.provenance ?? []).map(({ label, value }) => [label, value]),
    ["tokenspace", table.version],
  ].filter(([, value]) => value);
  fill(
    document.getElementById("table-facts"),
    facts.map(([label, value]) =>
      el("div", {}, el("dt", {}, brief(label, 60)), el("dd", {}, el("bdi", {}, brief(String(value), 300)))),
    ),
  );
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // no entry in the history for a jump within the page
  document.getElementById("main").focus();
});
links();
open();
