"""What a browser shows of numbers, read back."""

import re
from decimal import ROUND_HALF_UP, Decimal

MINUS = "\u2212"


def numbers(text):
    """The numbers in a shown text."""
    plain = text.replace(MINUS, "-").replace(",", "")
    return [float(found) for found in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", plain)]


def number(text):
    """The one number that a cell shows."""
    (found,) = numbers(text)
    return found


def written(x, digits=3):
    """``x`` as the page writes it: with a real minus sign, and never a negative zero."""
    text = str(Decimal(x).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))  # ties away from 0, as in JS
    return (text.lstrip("-") if float(text) == 0 else text).replace("-", MINUS)


def lines(page, within="#walk"):
    """Each row of the numbers on the page: its label, and the numbers as they are shown."""
    page.wait_for_selector(f"{within} .numbers tbody td")
    return page.evaluate(
        """(within) => [...document.querySelectorAll(`${within} .numbers tbody tr`)].map((row) => [
            row.querySelector("th").innerText.replace(/\\s+/g, " ").trim(),
            [...row.querySelectorAll("td")].map((cell) => cell.innerText),
        ])""",
        within,
    )


TOO_WIDE = """() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    const wide = [...document.body.querySelectorAll("*")]
        .filter((one) => one.getBoundingClientRect().right > clientWidth + 0.5)
        .map((one) => `${one.tagName}.${one.getAttribute("class")} to ${one.getBoundingClientRect().right}`);
    return scrollWidth > clientWidth ? [`${scrollWidth} of ${clientWidth} pixels`, ...wide] : [];
}"""


def too_wide(page):
    """What makes a page scroll sideways once it has settled; nothing if it fits."""
    for _ in range(20):
        if not (found := page.evaluate(TOO_WIDE)):
            break
        page.wait_for_timeout(100)
    return found
