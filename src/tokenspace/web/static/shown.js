/** Tokens made visible: the page's copy of `tokenspace.shown`, so that page and terminal write a token alike. */

import { el } from "./dom.js";

const LONGEST = 40; // characters of a token in running text; its title holds more
const LONGEST_TITLE = 2000;
const HIDDEN = /[\p{C}\p{Z}]/u; // what Python's str.isprintable calls not printable, but for the space
const ESCAPE = /\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U(000[0-9a-f]{5}|0010[0-9a-f]{4})|([nrt])|(['"\\]))/g;
const LETTERS = { n: "\n", r: "\r", t: "\t" };
const NAMED = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\" };

/**
 * `token` with what a page would obey, swallow or hide written as escapes.
 *
 * @param {string} token
 * @returns {string} the token itself, or as Python would write it: '\n', ' a', '\u202e'
 */
export function shown(token) {
  const plain = token && token === token.trim() && ![...token].some((c) => c !== " " && HIDDEN.test(c));
  return plain ? token : written(token);
}

/** The first `longest` characters of a token, shown, with an ellipsis where that cuts it. */
export function brief(token, longest = LONGEST) {
  const characters = [...shown(token)];
  return characters.length > longest ? characters.slice(0, longest - 1).join("") + "…" : characters.join("");
}

/**
 * A token as an element. Its direction is its own: a right-to-left token doesn't turn the numbers beside it.
 *
 * @param {string} token
 * @param {number} [longest]
 * @returns {HTMLElement}
 */
export function tokenNode(token, longest = LONGEST) {
  const text = brief(token, longest);
  const whole = shown(token);
  const title = text === whole ? null : titleOf(whole, [...token].length);
  return el("bdi", { class: "token", title }, text);
}

function titleOf(whole, length) {
  const characters = [...whole];
  const cut = characters.slice(0, LONGEST_TITLE).join("") + (characters.length > LONGEST_TITLE ? "…" : "");
  return `${cut} (${length.toLocaleString("en")} characters)`;
}

/** `text` in quotes, cut to `longest` characters: as the server writes what it refuses. */
export function quoted(text, longest = LONGEST) {
  return written([...text].slice(0, longest).join(""));
}

/**
 * The token that `shown` writes as `text`, in quotes.
 *
 * @param {string} text
 * @returns {?string} null if it writes none so
 */
export function unquoted(text) {
  if (text.length < 2 || !"'\"".includes(text[0]) || text.at(-1) !== text[0]) return null;
  const token = text.slice(1, -1).replace(ESCAPE, (_, x, u, wide, named, itself) => {
    const code = x ?? u ?? wide;
    return code ? String.fromCodePoint(parseInt(code, 16)) : (LETTERS[named] ?? itself);
  });
  return shown(token) === text ? token : null;
}

function written(token) {
  const quote = token.includes("'") && !token.includes('"') ? '"' : "'";
  return quote + [...token].map((c) => escaped(c, quote)).join("") + quote;
}

function escaped(character, quote) {
  if (character === quote) return `\\${character}`;
  if (NAMED[character]) return NAMED[character];
  if (character === " " || !HIDDEN.test(character)) return character;
  const code = character.codePointAt(0);
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  if (code < 0x10000) return `\\u${code.toString(16).padStart(4, "0")}`;
  return `\\U${code.toString(16).padStart(8, "0")}`;
}
