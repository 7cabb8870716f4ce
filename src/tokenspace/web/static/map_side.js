/** What stands beside the map: the legend, the token chosen with its neighbors, and what a lasso holds. */

import { el, fill } from "./dom.js";
import { count, fixed, plural } from "./numbers.js";
import { groupName } from "./map_colors.js";
import { brief, tokenNode } from "./shown.js";

const MOST_LISTED = 300;

/**
 * The legend: an amount's scale, or the groups, each of which can be taken off the map.
 *
 * @param {import("./map_colors.js").Coloring} coloring
 * @param {?Set<number>} only the groups drawn; null is all
 * @param {(only: ?Set<number>) => void} onchange
 */
export function legend(coloring, only, onchange) {
  const about = el("p", { class: "soft" }, coloring.about);
  const parts = [];
  if (coloring.amount) {
    const { lowText, highText, gradient } = coloring.amount;
    parts.push(
      el("div", { class: "amount", "aria-hidden": "true", style: { background: gradient } }),
      el("div", { class: "amount-ends" }, el("span", {}, lowText), el("span", {}, highText)),
    );
  }
  const named = coloring.groups.map((group, n) => [group, n]).filter(([group]) => group.color);
  if (named.length)
    parts.push(
      el(
        "div",
        { class: "swatches", role: "group", "aria-label": "Shown on the map" },
        named.map(([group, n]) => swatch(group, n, coloring, only, onchange)),
      ),
    );
  if (only !== null)
    parts.push(el("button", { type: "button", class: "link", onclick: () => onchange(null) }, "show all"));
  return [el("h3", {}, "Colors"), about, parts];
}

/** The token chosen, and its nearest rows in the table, not on the map. */
export function chosen({ token, id, kind, norm, told, hits }, onchoose, onclear) {
  const facts = [`id ${id}`, kind, `length ${fixed(norm)}`, told].filter(Boolean).join(", ");
  const list = el(
    "ol",
    { class: "hits found-list" },
    hits.map((hit) =>
      el(
        "li",
        { style: { "--share": Math.max(0, hit.score).toFixed(3) } },
        el(
          "button",
          { type: "button", class: "link", onclick: () => onchoose(hit.id) },
          tokenNode(hit.token, 22),
        ),
        el("span", { class: "number" }, fixed(hit.score, 4)),
      ),
    ),
  );
  return [
    el("h3", {}, tokenNode(token, 30)),
    el("p", { class: "soft" }, facts),
    el("p", { class: "soft" }, "Nearest in the table by cosine, lines on the map:"),
    list,
    el("button", { type: "button", class: "link", onclick: onclear }, "clear"),
  ];
}

/** The tokens inside a lasso. */
export function lassoed(ids, tokens, onchoose, onclear) {
  const list = el("ol", { class: "hits found-list" });
  fill(
    list,
    ids
      .slice(0, MOST_LISTED)
      .map((id) =>
        el(
          "li",
          {},
          el(
            "button",
            { type: "button", class: "link", onclick: () => onchoose(id) },
            tokenNode(tokens[id], 22),
          ),
          el("span", { class: "number soft" }, id),
        ),
      ),
  );
  const more = ids.length > MOST_LISTED ? `, the first ${MOST_LISTED} of them:` : ":";
  return [
    el("h3", {}, "Lasso"),
    el("p", { class: "soft" }, plural(ids.length, "token") + more),
    list,
    el("button", { type: "button", class: "link", onclick: onclear }, "clear the lasso"),
  ];
}

function swatch(group, n, coloring, only, onchange) {
  const on = only === null || only.has(n);
  const onclick = () => {
    if (only === null)
      onchange(new Set([n])); // the first choice shows one alone
    else {
      const next = new Set(only);
      if (on) next.delete(n);
      else next.add(n);
      onchange(next.size === 0 || next.size === coloring.groups.length ? null : next);
    }
  };
  return el(
    "button",
    { type: "button", "aria-pressed": String(on), title: brief(group.name, 300), onclick },
    el("span", { class: "swatch", style: { background: group.color } }),
    el("bdi", {}, groupName(group)),
    el("span", { class: "number" }, count(group.ids.length)),
  );
}
