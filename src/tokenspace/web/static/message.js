/** The page's one line for what it put right by itself. */

/** A refusal as a sentence of the page's: it begins with a capital, as the controls' labels do. */
export function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** @param {string} text "" for nothing to say */
export function tell(text) {
  const line = document.getElementById("message");
  line.textContent = text;
  line.hidden = text === "";
}
