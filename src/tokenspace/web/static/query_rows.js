/** Rows as colors and numbers: those of the words that a query concerns, or any that one names. */

import { el, field } from "./dom.js";
import { fixed, plural, unpacked } from "./numbers.js";
import { Rows } from "./rows.js";
import { brief, tokenNode, unquoted } from "./shown.js";
import { setState } from "./state.js";

const SHOWN = /(?<=^|[\s,])('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?:,|(?=\s)|$)/;

/** A picture of `/api/heatmap`'s answer with the numbers under it. */
export class HeatMap {
  constructor(answer, now) {
    this.lines = answer.rows.map((row) => ({
      label: tokenNode(row.label, 14),
      name: brief(row.label),
      values: unpacked(row.values),
      mark: markOf(row),
    }));
    const onmove = (dim) => setState({ dim: dim || null }, { replace: true, quiet: true });
    this.rows = new Rows({
      from: Number(now.dim) || 0,
      onmove,
      label: "Rows of the table: a column for each dimension",
    });
    const largest = Math.max(...this.lines.flatMap((line) => Array.from(line.values, Math.abs)));
    this.node = el("div", {}, this.rows.node, legend(largest));
  }

  /** Once it stands on the page, and has a width. */
  drawn() {
    this.rows.update(this.lines);
  }
}

/** See `QueryView`, which drives it. */
export class RowsQuery {
  constructor({ table, ask }) {
    this.first = table.defaults.words.filter((word) => apart(word).length === 1).join(" ");
    this.ask = ask;
    this.switches = [];
    this.words = el("input", {
      type: "text",
      autocomplete: "off",
      spellcheck: "false",
      maxlength: 2000,
      required: true,
    });
    this.fields = [field("Words, apart by spaces or commas", this.words)];
    this.fields[0].classList.add("words");
  }

  read(now) {
    return { words: now.words ?? this.first };
  }

  typed() {
    return { words: this.words.value };
  }

  async answer({ words }, settings, now) {
    this.words.value = words;
    const q = apart(words);
    const answer = await this.ask("heatmap", { q });
    this.heat = new HeatMap(answer, now);
    this.summary = `${plural(answer.rows.length, "row")} of ${this.heat.lines[0].values.length} dimensions.`;
    return [this.heat.node];
  }

  drawn() {
    this.heat.drawn();
  }
}

/** The words of a line; the comma in 3,000, or one by itself, stays, and what stands in a token shown as ' a'. */
function apart(line) {
  const words = [];
  for (const part of line.split(SHOWN)) {
    if (unquoted(part) !== null) words.push(part);
    else
      for (const word of part.split(/\s+/))
        words.push(...(/^,+$/.test(word) ? [word] : word.split(/,(?!\d)/)));
  }
  return words.filter(Boolean);
}

/** What a row is, where its label alone does not say that. */
function markOf({ id, tokens, also }) {
  if (id === null) return tokens.length > 1 ? `mean of ${tokens.length}` : null;
  return also?.length ? `id ${id}` : null; // one of several that look alike
}

function legend(largest) {
  const span = (text) => el("span", { class: "number" }, text);
  return el(
    "p",
    { class: "legend-line" },
    span(fixed(-largest, 2)),
    el("span", { class: "signed-scale", "aria-hidden": "true" }),
    span(fixed(largest, 2)),
  );
}
