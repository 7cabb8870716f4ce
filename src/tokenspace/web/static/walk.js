/** The walk: a text goes through the layer one step at a time, forwards, backwards, or by itself. */

import { ask } from "./api.js";
import { el, field, fill, select } from "./dom.js";
import { sentence, tellMore } from "./message.js";
import { plural, unpacked } from "./numbers.js";
import { Rows } from "./rows.js";
import { quoted } from "./shown.js";
import { addressOf, setState, showView, state } from "./state.js";
import { gradientLines, gradientPicture, gradientSummary } from "./walk_gradient.js";
import { nextReading } from "./walk_next.js";
import { idsPanel, linesOf, notesOf, tokensPanel } from "./walk_panels.js";
import { scoresPanel } from "./walk_scores.js";
import { stepsOf } from "./walk_steps.js";
import { strip } from "./walk_strip.js";

const PLAY_MS = 2600; // a step's time while it plays
const STRIP_TOKENS = 32; // drawn at a time

/** The view; `show` brings it to a state. */
export class WalkView {
  /** @param {any} table `/api/table`'s answer @param {() => Promise<any>} tokens `/api/tokens`'s, asked for once */
  constructor(table, tokens) {
    this.table = table;
    this.tokens = tokens;
    this.asked = null; // what `walk` answers
    this.walk = null;
    this.norms = null;
    this.timer = null;
    this.stripFrom = 0;
    this.form = this.#form();
    this.stepper = el("ol", { class: "stepper", "aria-label": "Steps" });
    this.back = el("button", { type: "button", onclick: () => this.#go(-1) }, "← Back");
    this.playButton = el(
      "button",
      { type: "button", class: "primary", onclick: () => this.#togglePlay() },
      "▶ Play",
    );
    this.next = el("button", { type: "button", onclick: () => this.#go(1) }, "Step →");
    this.keys = el("small", { class: "keys" }, "or the arrow keys");
    this.status = el("p", { class: "status", role: "status" });
    this.panel = el("div", { class: "panel" });
    this.reading = nextReading();
    this.controls = el("div", { class: "controls" }, this.back, this.playButton, this.next, this.keys);
    this.controls.hidden = true; // until there is a walk
    this.reading.hidden = true; // until its last step
    this.node = el("div", { class: "walk" }, this.form, this.status, this.stepper, this.controls, this.panel, this.reading);
    document.addEventListener("keydown", (event) => this.#key(event));
    let drawn = 0;
    new ResizeObserver(() => {
      if (Math.abs(this.panel.clientWidth - drawn) < 2) return;
      drawn = this.panel.clientWidth;
      this.#drawPictures();
    }).observe(this.panel);
  }

  /** @param {Object<string, string>} now the page's state */
  async show(now) {
    if (this.table.walk) {
      const link = (view, text) => {
        const onclick = (event) => {
          event.preventDefault();
          showView(view);
        };
        return el("a", { href: addressOf(view), onclick }, text);
      };
      fill(
        this.node,
        el("p", { class: "note" }, sentence(this.table.walk)),
        el("p", {}, "Its rows are on the ", link("map", "Map"), " and answer a ", link("query", "Query"), "."),
      );
      return;
    }
    const asked = { text: now.text ?? this.#firstText(), pair: now.pair ?? "", recipe: now.recipe ?? "" };
    this.text.value = asked.text;
    this.pair.value = asked.pair;
    this.recipe.value = asked.recipe;
    this.#forget();
    if (JSON.stringify(asked) !== JSON.stringify(this.asked)) {
      this.#stop();
      if (!(await this.#fetch(asked))) return;
    }
    this.#draw(now);
  }

  hide() {
    this.#stop();
    this.#forget();
  }

  /** What is still being asked is no longer wanted. */
  #forget() {
    this.request?.abort();
    this.request = null;
    this.node.removeAttribute("aria-busy");
  }

  #firstText() {
    return this.table.examples?.[0]?.text ?? this.table.defaults.text;
  }

  #form() {
    this.text = el("input", {
      type: "text",
      maxlength: 4000,
      autocomplete: "off",
      spellcheck: "false",
      required: true,
      list: "walk-examples",
    });
    this.pair = el("input", {
      type: "text",
      maxlength: 4000,
      autocomplete: "off",
      spellcheck: "false",
      placeholder: "none",
    });
    const recipes = (this.table.recipes ?? []).map((recipe) => recipe.name ?? recipe);
    this.recipe = select(
      [["", `the table's own (${this.table.recipe})`], ...recipes.map((name) => [name, name])],
      "",
      () => this.#submit(),
    );
    const examples = (this.table.examples ?? []).map((one) => el("option", { value: one.text }));
    const onsubmit = (event) => {
      event.preventDefault();
      this.#submit();
    };
    return el(
      "form",
      { class: "ask", onsubmit },
      field("Text", this.text),
      field("Pair (a second text)", this.pair),
      field("Recipe", this.recipe),
      el("button", { type: "submit", class: "primary" }, "Walk"),
      el("datalist", { id: "walk-examples" }, examples),
    );
  }

  #submit() {
    const example = (this.table.examples ?? []).find(
      (one) => this.table.offline && one.text === this.text.value && !this.pair.value,
    );
    const pair = this.pair.value || example?.pair;
    setState({
      text: this.text.value,
      pair,
      recipe: this.recipe.value || example?.recipe || null,
      step: this.text.value ? state().step : null,
    });
  }

  /** @returns {Promise<boolean>} whether there is a walk now; false, too, where another question came since */
  async #fetch(asked, more = {}) {
    this.#forget();
    const request = (this.request = new AbortController());
    this.node.setAttribute("aria-busy", "true");
    try {
      const walk = await ask("walk", { ...asked, ...more }, { signal: request.signal });
      if (this.request !== request) return false;
      this.walk = walk;
      this.asked = asked;
      this.more = more;
      this.status.textContent = `recipe ${walk.recipe}: ${plural(walk.tokens.length, "token")}, D = ${walk.d_model}`;
      this.status.classList.remove("error");
    } catch (error) {
      if (this.request !== request) return false;
      this.walk = null;
      this.asked = null;
      fill(this.panel);
      fill(this.stepper);
      this.reading.hidden = true;
      this.status.textContent = sentence(error.message);
      this.status.classList.add("error");
    }
    this.request = null;
    this.node.removeAttribute("aria-busy");
    this.controls.hidden = this.walk === null;
    return this.walk !== null;
  }

  #draw(now) {
    this.steps = stepsOf(this.walk, this.table);
    const at = Math.max(
      0,
      this.steps.findIndex((step) => step.key === now.step),
    );
    if (now.step !== undefined && now.step !== this.steps[at].key) {
      tellMore(`Step ${quoted(now.step, 40)} is not one of this walk; showing ${this.steps[at].name}.`);
      setState({ step: null }, { replace: true, quiet: true });
    }
    this.at = at;
    this.reading.hidden = at < this.steps.length - 1;
    this.back.disabled = at === 0;
    this.next.disabled = at === this.steps.length - 1;
    fill(
      this.stepper,
      this.steps.map((step, n) =>
        el(
          "li",
          {},
          el(
            "button",
            {
              type: "button",
              class: n < at ? "passed" : "",
              "aria-current": n === at ? "step" : null,
              onclick: () => this.#goTo(n),
            },
            step.name,
          ),
        ),
      ),
    );
    const current = this.stepper.children[at];
    this.stepper.scrollLeft = current.offsetLeft - this.stepper.clientWidth / 2 + current.clientWidth / 2;
    this.#drawStep(this.steps[at], now);
  }

  #drawStep(step, now) {
    this.picture = el("div", { class: "picture-of-step" });
    this.drawPicture = null;
    this.rows = null;
    this.drawn = step.key;
    this.dim = Number(now.dim) || 0;
    fill(
      this.panel,
      el(
        "header",
        {},
        el("h2", { "aria-live": "polite" }, step.name),
        el("code", { class: "formula" }, step.formula),
        el("span", { class: "shape", title: shapeTitle(step.key) }, step.shape),
      ),
      step.meaning.map((sentence) => el("p", {}, sentence)),
      notesOf(this.walk, step.key).map((sentence) => el("p", { class: "note drawn" }, sentence)),
      this.picture,
    );
    if (step.key === "tokens") this.panel.append(tokensPanel(this.walk));
    else if (step.key === "ids") this.panel.append(idsPanel(this.walk));
    else if (step.key === "predict")
      this.#later({ predict: true }, "predictions", () => this.panel.append(scoresPanel(this.walk)));
    else if (step.key === "gradient")
      this.#later({ gradient: true }, "gradient", () => this.#drawGradient());
    else {
      if (step.key === "lookup") this.#drawStrip();
      this.#drawRows(linesOf(this.walk, step.key), `${step.name}: a row for each token`);
    }
  }

  /** Scores and gradients take a product with the whole table: they are asked for when one comes to them. */
  async #later(more, key, draw) {
    if (!(key in this.walk) && !this.walk.left_out?.[key]) {
      const waiting = el("p", { class: "waiting", role: "status" }, "Computing …");
      this.panel.append(waiting);
      if (!(await this.#fetch(this.asked, { ...this.more, ...more }))) return;
      waiting.remove();
    }
    draw();
  }

  #drawGradient() {
    if (!this.walk.gradient) {
      this.panel.append(
        el("p", { class: "note" }, sentence(this.walk.left_out?.gradient ?? "There is no gradient for this text.")),
      );
      return;
    }
    this.panel.insertBefore(gradientSummary(this.walk), this.picture);
    this.drawPicture = (width) => gradientPicture(this.walk, width);
    this.#drawPictures();
    const lines = gradientLines(this.walk);
    if (lines.length)
      this.#drawRows(lines, "What each position and the head pass to a row, and the row before and after");
  }

  #drawRows(lines, label) {
    const onmove = (dim) => {
      setState({ dim: dim || null }, { replace: true, quiet: true });
      this.dim = dim;
      if (this.drawn !== "lookup") return;
      this.picture.classList.add("moved");
      this.#drawPictures();
    };
    this.rows = new Rows({ from: this.dim, onmove, label });
    this.panel.append(this.rows.node);
    this.rows.update(lines);
  }

  #drawStrip() {
    const T = this.walk.tokens.length;
    this.stripFrom = Math.min(this.stripFrom, T - 1);
    this.drawPicture = (width) =>
      strip(this.walk, this.table, {
        width,
        norms: this.norms,
        first: this.stripFrom,
        tokens: STRIP_TOKENS,
        dim: this.dim,
      });
    this.#drawPictures();
    if (T > STRIP_TOKENS) this.panel.insertBefore(this.#stripPager(T), this.picture);
    if (!this.norms) this.#shade();
  }

  #stripPager(T) {
    const where = el("span", { class: "where" });
    const move = (by) => {
      const last = Math.floor((T - 1) / STRIP_TOKENS) * STRIP_TOKENS;
      this.stripFrom = Math.min(Math.max(0, this.stripFrom + by), last);
      where.textContent = `tokens ${this.stripFrom}–${Math.min(T, this.stripFrom + STRIP_TOKENS) - 1} of ${T}`;
      this.#drawPictures();
    };
    const button = (text, label, by) =>
      el("button", { type: "button", "aria-label": label, onclick: () => move(by) }, text);
    const pager = el(
      "div",
      { class: "pager" },
      button("‹", "Earlier tokens", -STRIP_TOKENS),
      where,
      button("›", "Later tokens", STRIP_TOKENS),
    );
    move(0);
    return pager;
  }

  /** The strip's shade is the rows' lengths: they come with all tokens, after the walk is on the page. */
  async #shade() {
    try {
      this.norms = unpacked((await this.tokens()).norm);
      if (this.drawn === "lookup") this.#drawPictures();
    } catch (error) {
      console.info("the strip stays unshaded:", error.message);
    }
  }

  #drawPictures() {
    const width = this.picture?.clientWidth;
    if (width && this.drawPicture) fill(this.picture, this.drawPicture(width));
  }

  #go(by) {
    this.#stop();
    this.#goTo(this.at + by);
  }

  #goTo(n) {
    if (!this.walk || n < 0 || n >= this.steps.length) return;
    setState({ step: this.steps[n].key }, { replace: true });
  }

  #togglePlay() {
    if (this.timer) return this.#stop();
    if (this.at === this.steps.length - 1) this.#goTo(0);
    this.playButton.textContent = "❚❚ Pause";
    this.timer = setInterval(() => {
      if (this.at === this.steps.length - 1) return this.#stop();
      return this.#goTo(this.at + 1);
    }, PLAY_MS);
    return undefined;
  }

  #stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.playButton.textContent = "▶ Play";
  }

  #key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const busy =
      event.defaultPrevented ||
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      event.target.closest?.("input, select, textarea, [role=grid]");
    if (!by || busy || this.node.closest("[hidden]") || !this.walk) return;
    event.preventDefault();
    this.#go(by);
  }
}

function shapeTitle(key) {
  if (key === "tokens" || key === "ids") return "(T): one for each position";
  if (key === "predict") return "(T, V): a score for each position and token";
  if (key === "gradient") return "(V, D): a number for each number of the table";
  return "(T, D): positions by width";
}
