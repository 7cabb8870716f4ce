/** The page's one line for what it put right by itself. */

const ORDINARY = /^[a-z][a-z'’-]*(?![^\s,.:;])/; // t-SNE is written as it is

/** A refusal as a sentence of the page's: an ordinary word begins it with a capital, as the controls' labels do. */
export function sentence(text) {
  return ORDINARY.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}

/** @param {string} text "" for nothing to say */
export function tell(text) {
  const line = document.getElementById("message");
  line.textContent = text;
  line.hidden = text === "";
}

/** Say this, too. */
export function tellMore(text) {
  tell([document.getElementById("message").textContent, text].filter(Boolean).join(" "));
}
