/** Words in the page itself: which token a person means, and which begin with what was typed. */

import { shown, unquoted } from "./shown.js";

const MARKS = { "byte-level": "\u0120", sentencepiece: "\u2581" };
const VISIBLE = [[33, 126], [161, 172], [174, 255]]; // the bytes that byte-level tokens write as themselves

/** The tokens of a table, searched as `Vocab.find` and `web/spelling.py` do. */
export class Words {
  /**
   * @param {string[]} tokens @param {string} encoding @param {Uint8Array} placeholder
   * @param {number[]} verbatim ids of tokens, special or added, that are spelled as text, without marks
   */
  constructor(tokens, encoding, placeholder, verbatim) {
    this.tokens = tokens;
    this.encoding = encoding;
    this.placeholder = placeholder;
    this.verbatim = new Set(verbatim);
  }

  /** @returns {number} the id that a person means by `word`, or of the token that is shown so, or -1 */
  find(word) {
    this.first ??= firstIds(this.tokens);
    for (const spelling of new Set([word, word.normalize("NFC"), word.normalize("NFD")]))
      for (const form of this.#forms(spelling)) {
        const id = this.first.get(form);
        if (id !== undefined && (form === spelling || !this.verbatim.has(id))) return id;
      }
    const respelled = /[^\0-\x7f]/u.test(word) ? this.#partlyComposed().get(word.normalize("NFC")) : undefined;
    return respelled ?? this.first.get(unquoted(word)) ?? -1;
  }

  /** NFC to the first id, of tokens that are not NFC. */
  #partlyComposed() {
    if (this.composed) return this.composed;
    this.composed = new Map();
    const mark = MARKS[this.encoding] ?? "";
    this.tokens.forEach((token, id) => {
      const text = token.startsWith(mark) ? token.slice(mark.length) : token;
      const composed = text.normalize("NFC");
      if (composed !== text && !this.composed.has(composed)) this.composed.set(composed, id);
    });
    return this.composed;
  }

  /** @returns {number[]} up to `n` other ids of the same token */
  also(id, n) {
    const others = [];
    for (let other = 0; other < this.tokens.length && others.length < n; other++)
      if (other !== id && this.tokens[other] === this.tokens[id]) others.push(other);
    return others;
  }

  /** @returns {number[]} the token that is `prefix`, those that begin with it, then those that hold it; the shorter first */
  complete(prefix, n) {
    this.spelled ??= this.tokens.map((token, id) => folded(this.#spelled(token, id)));
    const sought = folded(prefix);
    const [begins, holds] = [[], []];
    this.spelled.forEach((form, id) => {
      if (this.placeholder[id] || !form.includes(sought)) return;
      (form.startsWith(sought) ? begins : holds).push([[...form].length, id]);
    });
    const order = (a, b) => a[0] - b[0] || a[1] - b[1];
    const exact = this.find(prefix);
    const found = new Set(exact < 0 || this.placeholder[exact] ? [] : [exact]);
    for (const id of [...begins.sort(order), ...holds.sort(order)].map(([, id]) => id)) found.add(id);
    this.written ??= writtenForms(this.tokens);
    for (const [id, written] of this.written)
      if (!this.placeholder[id] && (written.startsWith(sought) || written.startsWith(written[0] + sought))) found.add(id);
    return [...found].slice(0, n);
  }

  #forms(word) {
    if (this.encoding === "byte-level") {
      const plain = byteLevel(word);
      return [`\u0120${plain}`, plain, word];
    }
    if (this.encoding === "sentencepiece") return [`\u2581${word.replaceAll(" ", "\u2581")}`, word];
    return [word];
  }

  #spelled(token, id) {
    if (this.verbatim.has(id)) return token;
    if (this.encoding === "wordpiece") return token.replace(/^##(?=.)/su, "");
    if (this.encoding === "sentencepiece") return token.replace(/^\u2581(?=.)/su, "");
    if (this.encoding === "byte-level") return fromByteLevel(token).replace(/^ /, "");
    return token;
  }
}

function firstIds(tokens) {
  const first = new Map();
  tokens.forEach((token, id) => {
    if (!first.has(token)) first.set(token, id);
  });
  return first;
}

/** Tokens that aren't printed as they are, as they are shown. */
function writtenForms(tokens) {
  return tokens.map((token, id) => [id, shown(token)]).filter(([id, written]) => written !== tokens[id]).map(([id, written]) => [id, folded(written)]);
}

function folded(text) {
  return text.toLowerCase().replaceAll("ß", "ss").replaceAll("ς", "σ").normalize("NFC");
}

/** The printable stand-in for each byte: itself if visible, else the next character from 256. */
function alphabet() {
  const visible = (byte) => VISIBLE.some(([from, to]) => byte >= from && byte <= to);
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(visible(byte) ? byte : next++));
}

function byteLevel(word) {
  const standIns = alphabet();
  return [...new TextEncoder().encode(word)].map((byte) => standIns[byte]).join("");
}

let bytes = null; // by stand-in

function fromByteLevel(token) {
  bytes ??= new Map(alphabet().map((character, byte) => [character, byte]));
  if ([...token].some((character) => !bytes.has(character))) return token; // a special token
  return new TextDecoder().decode(Uint8Array.from(token, (character) => bytes.get(character)));
}
