/** Which rows lie nearest to a word's, raw and under the switches. */

import { TokenField } from "./complete.js";
import { el } from "./dom.js";
import { fixed, plural } from "./numbers.js";
import { HeatMap } from "./query_rows.js";
import { brief, tokenNode } from "./shown.js";
import { setState } from "./state.js";
import { answersUnder, columnNodes, columns, hitList, neighborLink } from "./switches.js";

const METRICS = { cosine: "cosine", dot: "dot product", l2: "distance" };
const HEAT_ROWS = 5; // hits drawn under the lists

/** See `QueryView`, which drives it. */
export class NeighborsQuery {
  constructor({ table, ask }) {
    this.table = table;
    this.ask = ask;
    this.switches = ["metric", "k", "remove"];
    const onpick = () => setState(this.typed());
    this.word = new TokenField({ label: "Word or token", required: true, onpick });
    this.fields = [this.word.node];
  }

  /** What the address asks. */
  read(now) {
    if (now.id !== undefined) return { id: now.id };
    return { q: now.q ?? this.table.defaults.words[0] };
  }

  /** What the fields ask, for the address. */
  typed() {
    const { word, id } = this.word.value;
    return id === null ? { q: word, id: null } : { q: null, id };
  }

  async answer(asked, { k, metric, remove }, now) {
    if (asked.q !== undefined) this.word.set(asked.q);
    const setWord = this.word.setLater();
    const settings = columns(remove);
    const answers = answersUnder(settings, (params) =>
      this.ask("neighbors", { ...asked, k, metric, ...params }),
    );
    const { query, hits } = await answers[0];
    if (asked.id !== undefined) setWord(query.word ?? query.tokens[0], Number(asked.id));
    const known = new Set(hits.map((hit) => hit.id));
    const go = (hit) => setState({ id: hit.id, q: null });
    const list = (answer, n) =>
      hitList(
        answer.hits,
        (score) => fixed(score, 4),
        (hit) => neighborLink(hit, go),
        n ? known : null,
      );
    const rows = await this.ask(
      "heatmap",
      asked.id === undefined ? { q: asked.q, id: first(hits) } : { id: [asked.id, ...first(hits)] },
    );
    this.heat = new HeatMap(rows, now);
    this.summary = `${plural(hits.length, "neighbor")} of ${brief(query.word ?? query.tokens[0])} by ${METRICS[metric]}, ${settings.length === 3 ? "three" : "two"} ways.`;
    return [
      composed(query),
      asked.id === undefined && twins(query.tokens[0], query.ids[0], query.also),
      columnNodes(settings, answers, list, k),
      el("h3", {}, "The rows themselves"),
      this.heat.node,
    ];
  }

  drawn() {
    this.heat.drawn();
  }
}

/** Said of a word that is several tokens: its vector is their mean. */
export function composed(query) {
  if (query.tokens.length === 1) return null;
  const pieces = query.tokens.flatMap((token, n) => (n ? [" + ", tokenNode(token)] : [tokenNode(token)]));
  return el(
    "p",
    { class: "note" },
    tokenNode(query.word),
    " is no single token: its vector is the mean of ",
    pieces,
    ".",
  );
}

/** Said of a token that stands at several ids, one of which was taken. */
export function twins(token, id, also) {
  if (!also?.length) return null;
  const more = also.length > 1 ? "the others are" : "the other is";
  return el(
    "p",
    { class: "note" },
    tokenNode(token),
    ` stands at several ids. This is the first, id ${id}; ${more} ${also.join(", ")}.`,
  );
}

function first(hits) {
  return hits.slice(0, HEAT_ROWS).map((hit) => hit.id);
}
