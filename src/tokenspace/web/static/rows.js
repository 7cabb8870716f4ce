/**
 * Rows of numbers, one below the other so that the same dimension stands in the same column: an addition reads as
 * it is written by hand. As many dimensions as fit are shown, and one pages through the rest; a picture of all of
 * them above says where one is.
 */

import { signedColor, typicalLargest } from "./colors.js";
import { el, fill } from "./dom.js";
import { among, exact } from "./numbers.js";

const MOST_COLUMNS = 20;
const PICTURE_ROW = 7; // CSS pixels a row of the picture
const UNREAD =
  "Blue is below 0, orange above. Point at a number, or go to it with the arrow keys, for all its digits.";

/**
 * @typedef {Object} Line one row of numbers
 * @property {Node} label what stands before it
 * @property {string} name the same in words, for the readout
 * @property {ArrayLike<number>} values D numbers
 * @property {"term"|"sum"|"plain"} [role] "sum" has a rule above it, as under an addition
 * @property {boolean} [first] begins a group (a token)
 * @property {string} [mark] a word behind the row
 * @property {?number} [scaleOf] lines of the same number share one color scale (0 if left out)
 */

/** A table of numbers over D dimensions, windowed; `update` gives it other lines. */
export class Rows {
  /**
   * @param {{from?: number, onmove?: (from: number) => void, label?: string}} options `from`: the first
   *   dimension to show; `onmove` hears when another one comes first
   */
  constructor({ from = 0, onmove = () => {}, label = "Rows of numbers" } = {}) {
    this.from = from;
    this.lines = [];
    this.columns = 0;
    this.onmove = onmove;
    this.label = label;
    this.table = el("table", { class: "numbers", role: "grid", "aria-label": label });
    this.readout = el("p", { class: "readout" }, UNREAD);
    this.where = el("span", { class: "where" });
    this.back = el(
      "button",
      { type: "button", "aria-label": "Earlier dimensions", onclick: () => this.page(-1) },
      "‹",
    );
    this.next = el(
      "button",
      { type: "button", "aria-label": "Later dimensions", onclick: () => this.page(1) },
      "›",
    );
    this.picture = el("canvas", {
      class: "picture",
      "aria-hidden": "true",
      onclick: (event) => this.#jump(event),
    });
    this.window = el("div", { class: "picture-window", "aria-hidden": "true" });
    this.pictureBox = el(
      "div",
      { class: "picture-box", title: "All dimensions; choose where to look" },
      this.picture,
      this.window,
    );
    this.node = el(
      "div",
      { class: "rows" },
      el("div", { class: "pager" }, this.back, this.where, this.next),
      this.pictureBox,
      this.table,
      this.readout,
    );
    this.table.addEventListener("keydown", (event) => this.#walkCells(event));
    for (const name of ["pointerover", "focusin"])
      this.table.addEventListener(name, (event) => this.#read(event));
    new ResizeObserver(() => this.#fit()).observe(this.node);
  }

  /** @param {Line[]} lines */
  update(lines) {
    this.lines = lines;
    this.scales = scalesOf(lines);
    this.columns = 0; // drawn anew once its width is known
    this.readout.textContent = UNREAD;
    this.#fit();
    this.#paint();
  }

  get width() {
    return this.lines.length ? this.lines[0].values.length : 0;
  }

  /** Go `pages` windows on. */
  page(pages) {
    this.#show(this.from + pages * this.columns);
  }

  #fit() {
    const room = this.node.clientWidth;
    if (!room || !this.lines.length) return;
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const narrow = room < 34 * rem;
    const columns = Math.floor((room - (narrow ? 6.4 : 10.5) * rem) / ((narrow ? 3.3 : 4.1) * rem));
    const fitting = Math.max(2, Math.min(MOST_COLUMNS, this.width, columns));
    if (fitting === this.columns) return;
    this.columns = fitting;
    this.#show(this.from, false);
  }

  #show(from, tell = true) {
    const last = Math.max(0, this.width - this.columns);
    const start = Math.min(Math.max(0, from), last);
    if (tell && start !== this.from) this.onmove(start);
    this.from = start;
    const end = Math.min(start + this.columns, this.width);
    this.where.textContent = `dimensions ${start}–${end - 1} of ${this.width}`;
    this.back.disabled = start === 0;
    this.next.disabled = start === last;
    this.#mark();
    this.#draw(start, end);
  }

  #draw(start, end) {
    const dims = Array.from({ length: end - start }, (_, n) => start + n);
    const head = el(
      "tr",
      {},
      el("td", {}),
      dims.map((d) => el("th", { scope: "col" }, d)),
    );
    const body = this.lines.map((line, r) => {
      const classes = [line.role ?? "plain", line.first ? "first" : ""].join(" ");
      const cells = dims.map((d) => this.#cell(line, r, d));
      const mark = line.mark && el("small", { class: "mark" }, line.mark);
      return el(
        "tr",
        { class: classes },
        el("th", { scope: "row" }, line.label.cloneNode(true), mark && [" ", mark]),
        cells,
      );
    });
    fill(this.table, el("thead", {}, head), el("tbody", {}, body));
    this.table.querySelector("td.cell")?.setAttribute("tabindex", "0");
  }

  #cell(line, r, d) {
    const x = line.values[d];
    const largest = this.scales[line.scaleOf ?? 0];
    const background = signedColor(x, largest);
    return el(
      "td",
      { class: "cell", tabindex: "-1", data: { r, d }, style: { background } },
      among(x, largest),
    );
  }

  #read(event) {
    const cell = event.target.closest("td.cell");
    if (!cell) return;
    const line = this.lines[Number(cell.dataset.r)];
    const d = Number(cell.dataset.d);
    this.readout.textContent = `${line.name}, dimension ${d}: ${exact(line.values[d])}`;
  }

  /** Arrow keys go from cell to cell, and on to the next window at its edge. */
  #walkCells(event) {
    const cell = event.target.closest("td.cell");
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!cell || !step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation(); // outside a table the arrow keys walk the steps
    const r = Math.min(Math.max(0, Number(cell.dataset.r) + step[0]), this.lines.length - 1);
    const d = Math.min(Math.max(0, Number(cell.dataset.d) + step[1]), this.width - 1);
    if (d < this.from || d >= this.from + this.columns) this.page(step[1]);
    this.table.querySelector(`td[data-r="${r}"][data-d="${d}"]`)?.focus();
  }

  #jump(event) {
    const box = this.picture.getBoundingClientRect();
    const d = Math.floor(((event.clientX - box.left) / box.width) * this.width);
    this.#show(d - Math.floor(this.columns / 2));
  }

  /** All numbers as colors: a pixel for each, stretched by the style sheet. */
  #paint() {
    const { picture, lines, width } = this;
    if (!width) return;
    picture.width = width;
    picture.height = lines.length;
    this.pictureBox.style.setProperty(
      "--picture-height",
      `${Math.min(160, Math.max(14, lines.length * PICTURE_ROW))}px`,
    );
    const context = picture.getContext("2d");
    context.clearRect(0, 0, width, lines.length);
    lines.forEach((line, r) => {
      for (let d = 0; d < width; d++) {
        context.fillStyle = signedColor(line.values[d], this.scales[line.scaleOf ?? 0], 1);
        context.fillRect(d, r, 1, 1);
      }
    });
  }

  #mark() {
    const style = this.window.style;
    style.left = `${(100 * this.from) / this.width}%`;
    style.width = `${(100 * this.columns) / this.width}%`;
  }
}

/** @param {Line[]} lines */
function scalesOf(lines) {
  const groups = new Map();
  for (const line of lines) {
    const scale = line.scaleOf ?? 0;
    if (!groups.has(scale)) groups.set(scale, []);
    groups.get(scale).push(...line.values);
  }
  return Object.fromEntries([...groups].map(([scale, values]) => [scale, typicalLargest(values)]));
}
