/** A text field that proposes the table's tokens while one types (ARIA's combobox with a list). */

import { ask } from "./api.js";
import { el, fill } from "./dom.js";
import { shown, tokenNode } from "./shown.js";

const PAUSE_MS = 120; // of typing, before the server is asked
const PROPOSALS = 12;

let made = 0;

/** A word typed, or a token picked: then its id is the key, since two ids may hold the same token. */
export class TokenField {
  /**
   * @param {{label: string, placeholder?: string, required?: boolean, onpick?: (value: {word: string, id: ?number}) => void}} options
   *   `onpick` hears when a proposal is taken
   */
  constructor({ label, placeholder = "", required = false, onpick = () => {} }) {
    const id = `token-${(made += 1)}`;
    this.onpick = onpick;
    this.id = null; // of the proposal that was taken; null once one types on
    this.edits = 0; // how often one has typed here
    this.proposals = [];
    this.active = -1;
    this.list = el("ul", {
      id: `${id}-list`,
      role: "listbox",
      class: "proposals",
      "aria-label": "Tokens",
      hidden: true,
    });
    this.input = el("input", {
      id,
      type: "text",
      role: "combobox",
      autocomplete: "off",
      autocapitalize: "off",
      spellcheck: "false",
      maxlength: 2000,
      placeholder,
      required,
      "aria-autocomplete": "list",
      "aria-expanded": "false",
      "aria-controls": `${id}-list`,
      oninput: () => this.#typed(),
      onkeydown: (event) => this.#key(event),
      onblur: () => this.#close(),
    });
    this.node = el(
      "div",
      { class: "field completed" },
      el("label", { for: id }, label),
      this.input,
      this.list,
    );
  }

  /** @returns {{word: string, id: ?number}} */
  get value() {
    return { word: this.input.value, id: this.id };
  }

  /** Show a word, or the token `id` (whose id is asked for, so that it may stand there made visible). */
  set(word, id = null) {
    this.input.value = id === null ? word : shown(word);
    this.id = id;
    this.#close();
  }

  /** @returns {typeof this.set} `set` for an answer that comes later: it keeps what one types until then */
  setLater() {
    const edits = this.edits;
    return (word, id = null) => {
      if (this.edits === edits) this.set(word, id);
    };
  }

  #typed() {
    this.id = null;
    this.edits += 1;
    this.request?.abort();
    this.#activate(-1); // what was proposed for less is not taken for more
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#propose(), PAUSE_MS);
  }

  async #propose() {
    const prefix = this.input.value;
    if (!prefix) return this.#close();
    this.request?.abort();
    this.request = new AbortController();
    try {
      const { tokens } = await ask("complete", { prefix, n: PROPOSALS }, { signal: this.request.signal });
      if (this.input.value === prefix && document.activeElement === this.input) this.#open(tokens);
    } catch (error) {
      if (error.name !== "AbortError") this.#close(); // proposals are a help: the query itself says what is wrong
    }
    return undefined;
  }

  #open(tokens) {
    this.proposals = tokens;
    this.active = -1;
    fill(
      this.list,
      tokens.map((token, n) =>
        el(
          "li",
          {
            role: "option",
            id: `${this.list.id}-${n}`,
            "aria-selected": "false",
            onpointerdown: (event) => this.#pick(n, event),
          },
          tokenNode(token.token, 28),
          el("small", {}, token.id),
        ),
      ),
    );
    this.list.hidden = tokens.length === 0;
    this.input.setAttribute("aria-expanded", String(tokens.length > 0));
  }

  #close() {
    clearTimeout(this.timer);
    this.request?.abort();
    this.list.hidden = true;
    this.active = -1;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  #key(event) {
    if (event.key === "Escape") this.#close();
    if (this.list.hidden) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      const from = this.active < 0 && step < 0 ? 0 : this.active; // up from the field is the last one
      this.#activate((from + step + this.proposals.length) % this.proposals.length);
    } else if (event.key === "Enter" && this.active >= 0) {
      this.#pick(this.active, event);
    }
  }

  /** Mark a proposal; -1 is none. */
  #activate(n) {
    this.active = n;
    [...this.list.children].forEach((option, k) => option.setAttribute("aria-selected", String(k === n)));
    if (n < 0) return this.input.removeAttribute("aria-activedescendant");
    this.list.children[n].scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", this.list.children[n].id);
    return undefined;
  }

  #pick(n, event) {
    event.preventDefault(); // the field keeps the focus, and the form isn't sent twice
    const { token, id } = this.proposals[n];
    this.set(token, id);
    this.onpick(this.value);
  }
}
