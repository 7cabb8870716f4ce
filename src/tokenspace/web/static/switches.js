/** The switches of a query, as columns side by side: so that one sees what a switch does. */

import { el, fill } from "./dom.js";
import { sentence } from "./message.js";
import { tokenNode } from "./shown.js";

/**
 * The settings that every answer is given under: three, or two of a table with no direction to spare.
 *
 * @param {number} remove how many directions the third takes out
 * @returns {{name: string, about: string, params: {center: number, remove: number}}[]}
 */
export function columns(remove) {
  const directions = remove === 1 ? "direction" : `${remove} directions`;
  const both = [
    { name: "raw", about: "the rows as they are", params: { center: 0, remove: 0 } },
    { name: "centered", about: "minus the mean row", params: { center: 1, remove: 0 } },
  ];
  if (remove < 1) return both;
  return [
    ...both,
    {
      name: `top ${directions} removed`,
      about: "centered, then without what all rows share most",
      params: { center: 1, remove },
    },
  ];
}

/**
 * One answer for each switch, asked for at once. The first one's refusal is the query's; the others' are told in
 * their columns, or not at all where the first one failed too.
 *
 * @param {{params: Object}[]} settings
 * @param {(params: Object) => Promise<any>} ask
 */
export function answersUnder(settings, ask) {
  const answers = settings.map(({ params }) => ask(params));
  for (const answer of answers) answer.catch(() => {});
  return answers;
}

/**
 * The columns: each switch, and under it its answer as soon as it is there. The first time a table is centered or
 * freed of directions it is read whole, which nobody should wait for who asks what the rows say as they are.
 *
 * @param {{name: string, about: string}[]} settings
 * @param {Promise<any>[]} answers one for each
 * @param {(answer: any, n: number) => any} draw what stands under switch `n`
 * @param {number} lines how many are expected, so that nothing moves when they come
 */
export function columnNodes(settings, answers, draw, lines) {
  const nodes = settings.map((column, n) => {
    const content = el(
      "div",
      { class: "expected", style: { "--lines": lines } },
      el("p", { class: "soft" }, "Computing …"),
    );
    answers[n].then(
      (answer) => fill(content, draw(answer, n)).classList.remove("expected"),
      (error) => error.name !== "AbortError" && fill(content, el("p", { class: "note" }, sentence(error.message))),
    );
    return el(
      "section",
      { class: "column" },
      el("h3", {}, column.name),
      el("p", { class: "soft" }, column.about),
      content,
    );
  });
  return el("div", { class: "columns" }, nodes);
}

/**
 * Hits with their scores, best first; those that another column lacks are marked.
 *
 * @param {{token: string, id: number, score: number}[]} hits
 * @param {(score: number) => string} written
 * @param {(hit: any) => Node} link
 * @param {?Set<number>} known ids of the column that this one is compared with
 */
export function hitList(hits, written, link, known = null) {
  const best = hits[0]?.score ?? 0;
  const worst = hits[hits.length - 1]?.score ?? 0;
  return el(
    "ol",
    { class: "hits" },
    hits.map((hit) => {
      const fresh = known !== null && !known.has(hit.id);
      return el(
        "li",
        {
          class: fresh ? "fresh" : "",
          title: `id ${hit.id}`,
          style: { "--share": barOf(hit.score, best, worst) },
        },
        link(hit),
        fresh && el("small", { class: "mark" }, "not in raw"),
        el("span", { class: "number" }, written(hit.score)),
      );
    }),
  );
}

/** A token that leads to its own neighbors. */
export function neighborLink(hit, go) {
  return el(
    "button",
    { type: "button", class: "link", title: "its neighbors", onclick: () => go(hit) },
    tokenNode(hit.token, 24),
  );
}

/** A score's bar: from 0 where scores are positive, else from the worst one on the list. */
function barOf(score, best, worst) {
  if (best > 0 && worst >= 0) return Math.max(0, score / best).toFixed(3);
  return best === worst ? 1 : (0.15 + (0.85 * (score - worst)) / (best - worst)).toFixed(3);
}
