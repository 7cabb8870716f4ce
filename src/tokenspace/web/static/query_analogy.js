/** a is to b as c is to what? As arithmetic, and as the two arrows that it says are alike. */

import { TokenField } from "./complete.js";
import { el, svg } from "./dom.js";
import { count, fixed, percent } from "./numbers.js";
import { HeatMap } from "./query_rows.js";
import { twins } from "./query_neighbors.js";
import { readWords, rowsAsked, typedWords, wordsLater } from "./query_similarity.js";
import { brief, tokenNode } from "./shown.js";
import { setState } from "./state.js";
import { answersUnder, columnNodes, columns, hitList, neighborLink } from "./switches.js";

const FEWEST = 4; // tokens: three to ask about, and one that answers
const WIDTH = 340;
const HEIGHT = 284;
const MARGIN = 46;

/** See `QueryView`, which drives it. */
export class AnalogyQuery {
  constructor({ table, ask }) {
    const [b, d = b, a = d, c = a] = table.defaults.words; // a is to b as c is to d
    this.first = { a, b, c };
    this.table = table;
    this.ask = ask;
    this.switches = ["method", "k", "remove"];
    const onpick = () => setState(this.typed());
    this.words = {
      a: new TokenField({ label: "a", required: true, onpick }),
      b: new TokenField({ label: "is to b", required: true, onpick }),
      c: new TokenField({ label: "as c", required: true, onpick }),
    };
    this.fields = Object.values(this.words).map((one) => one.node);
  }

  read(now) {
    return readWords(now, this.first);
  }

  typed() {
    return typedWords(this.words);
  }

  async answer(asked, { k, method, remove }, now) {
    if (this.table.named < FEWEST) {
      this.heat = null;
      this.summary = "";
      return el(
        "p",
        { class: "note" },
        `An analogy needs ${FEWEST} tokens, three to ask about and one that answers; this table has ${count(this.table.named)}.`,
      );
    }
    const setWords = wordsLater(this.words, asked);
    const settings = columns(remove);
    const answers = answersUnder(settings, (params) =>
      this.ask("analogy", { ...asked, k, method, ...params }),
    );
    const raw = await answers[0];
    setWords(raw.words);
    const known = new Set(raw.hits.map((hit) => hit.id));
    const go = (hit) => setState({ ask: "neighbors", id: hit.id, q: null });
    const draw = ({ hits, words, arrows }, n) => [
      arithmetic(words, hits[0]),
      hitList(
        hits,
        (score) => fixed(score, 4),
        (hit) => neighborLink(hit, go),
        n ? known : null,
      ),
      arrows && picture(words, hits[0], arrows, method),
    ];
    const best = raw.hits.slice(0, 1).map((hit) => hit.id);
    this.heat = new HeatMap(await this.ask("heatmap", rowsAsked(asked, ["a", "b", "c"], best)), now);
    this.summary = `${brief(raw.words.a.token)} is to ${brief(raw.words.b.token)} as ${brief(raw.words.c.token)} is to ${brief(raw.hits[0].token)} (${fixed(raw.hits[0].score, 4)}). The three words given can't be answers.`;
    const said = ["a", "b", "c"].filter((name) => asked[name] !== undefined).map((name) => raw.words[name]);
    return [
      said.map(({ token, id, also }) => twins(token, id, also)),
      columnNodes(settings, answers, draw, k + 10),
      el("h3", {}, "The rows themselves"),
      this.heat.node,
    ];
  }

  drawn() {
    this.heat?.drawn();
  }
}

function arithmetic({ a, b, c }, best) {
  return el(
    "p",
    { class: "arithmetic" },
    tokenNode(b.token, 16),
    " − ",
    tokenNode(a.token, 16),
    " + ",
    tokenNode(c.token, 16),
    " ≈ ",
    el("strong", {}, tokenNode(best.token, 16)),
  );
}

/** The two arrows in a plane; the target, where the arithmetic lands, as a ring. */
function picture(words, best, { points, axes, plane_share: share }, method) {
  const at = projector(Object.values(points));
  const [a, b, c, d, target] = ["a", "b", "c", "d", "target"].map((name) => at(points[name]));
  const names = { a: words.a.token, b: words.b.token, c: words.c.token, d: best.token };
  const described = `Two arrows: from ${brief(names.a)} to ${brief(names.b)}, and from ${brief(names.c)} to ${brief(names.d)}`;
  const drawing = svg(
    "svg",
    { class: "arrows", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": described },
    arrow(a, b, "arrow-given"),
    arrow(c, d, "arrow-found"),
    svg("line", { x1: d[0], y1: d[1], x2: target[0], y2: target[1], class: "arrow-gap" }),
    svg("circle", { cx: target[0], cy: target[1], r: 6, class: "arrow-target" }),
    svg("text", { x: WIDTH / 2, y: HEIGHT - 6, "text-anchor": "middle", class: "axis" }, brief(axes[0], 52)),
    svg(
      "text",
      {
        x: 12,
        y: HEIGHT / 2,
        "text-anchor": "middle",
        transform: `rotate(-90 12 ${HEIGHT / 2})`,
        class: "axis",
      },
      brief(axes[1], 52),
    ),
    labels([
      [a, names.a],
      [b, names.b],
      [c, names.c],
      [d, names.d],
    ]),
  );
  const formula = method === "3cosmul" ? "the target of 3CosAdd" : "b − a + c of rows scaled to length 1";
  const still = [
    [points.a, points.b],
    [points.c, points.d],
  ].every(([from, to]) => from[0] === to[0] && from[1] === to[1]);
  const held = still
    ? "Both arrows have length 0, so they have no direction."
    : `This plane holds ${percent(share)} of the squared lengths.`;
  const caption = `Ring: ${formula}. ${held}`;
  return el("figure", {}, drawing, el("figcaption", { class: "soft" }, caption));
}

/** Points to pixels, with the same scale on both axes: angles stay angles. */
function projector(points) {
  const xs = points.map((point) => point[0]);
  const ys = points.map((point) => point[1]);
  const low = [Math.min(...xs), Math.min(...ys)];
  const span = [Math.max(...xs) - low[0], Math.max(...ys) - low[1]];
  const scale = Math.min((WIDTH - 2 * MARGIN) / (span[0] || 1), (HEIGHT - 2 * MARGIN) / (span[1] || 1));
  const left = (WIDTH - scale * span[0]) / 2;
  const bottom = (HEIGHT - scale * span[1]) / 2;
  return ([x, y]) => [left + scale * (x - low[0]), HEIGHT - 10 - bottom - scale * (y - low[1])];
}

function arrow([x1, y1], [x2, y2], name) {
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
  const tip = (side) => `${x2 - 11 * ux - side * 5 * uy},${y2 - 11 * uy + side * 5 * ux}`;
  return svg(
    "g",
    { class: name },
    svg("circle", { cx: x1, cy: y1, r: 3 }),
    svg("line", { x1, y1, x2: x2 - 9 * ux, y2: y2 - 9 * uy }),
    svg("polygon", { points: `${x2},${y2} ${tip(1)} ${tip(-1)}` }),
  );
}

/** Names beside their points, moved apart where two would overlap. */
function labels(named) {
  const placed = [];
  for (const [[x, y], token] of [...named].sort((one, other) => one[0][1] - other[0][1])) {
    const text = brief(token, 14);
    const half = 3.9 * [...text].length;
    const left = Math.min(Math.max(x, half + 22), WIDTH - half - 4);
    let top = y - 9;
    while (
      placed.some(
        (other) => Math.abs(other.left - left) < half + other.half && Math.abs(other.top - top) < 14,
      )
    )
      top += 15;
    placed.push({ left, top, half, text });
  }
  return placed.map(({ left, top, text }) =>
    svg("text", { x: left, y: top, "text-anchor": "middle", class: "arrow-label" }, text),
  );
}
