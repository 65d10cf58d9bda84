// A code drawn bit by bit, with how sure each bit is, alone or beside another code.

import { make } from "./api.js";
import { cases, counted } from "./words.js";

export const TOSS = 1 / 3; // a bit that turns over so often is as good as tossed

const isToss = (code, n) => code.bit_uncertainty !== null && code.bit_uncertainty[n] >= TOSS;

function cell(code, n) {
  const bit = code.bits[n];
  const drawn = make("span", { className: `bit ${bit === "1" ? "one" : "zero"}` }, make("i"), make("b"));
  drawn.title = `bit ${n + 1} is ${bit}`;
  if (code.bit_uncertainty) {
    const unsure = code.bit_uncertainty[n];
    drawn.style.setProperty("--unsure", Math.min(1, 2 * unsure)); // of a coin toss, which is as unsure as can be
    drawn.title += `, turns over in ${cases(unsure)}`;
  }
  return drawn;
}

function inBytes(cells) {
  const bytes = [];
  for (let n = 0; n < cells.length; n += 8) bytes.push(make("span", { className: "byte" }, ...cells.slice(n, n + 8)));
  return bytes;
}

export function drawCode(place, code) {
  const unsure = code.bit_uncertainty;
  place.replaceChildren(...inBytes([...code.bits].map((_, n) => cell(code, n))));
  place.classList.add("code");
  place.classList.toggle("graded", Boolean(unsure));
  let least = "";
  if (unsure) {
    const n = unsure.indexOf(Math.max(...unsure));
    least = `; the least sure, bit ${n + 1}, turns over in ${cases(unsure[n])}`;
  }
  place.setAttribute("aria-label", `Code ${code.bits}${least}`);
  return unsure
    ? "The fainter a bit and the longer its bar, the likelier it turns over."
    : "How sure each bit is was not kept.";
}

// Which bits of two codes differ, and of which of those at least one code was as good as tossed.
export function compare(one, other) {
  const differing = [...one.bits].map((_, n) => n).filter((n) => one.bits[n] !== other.bits[n]);
  return { differing, tossed: differing.filter((n) => isToss(one, n) || isToss(other, n)) };
}

function sentence({ differing, tossed }, n_bits, known) {
  if (!differing.length) return `All ${n_bits} bits are the query's.`;
  const differ = `${differing.length} of ${n_bits} bits ${differing.length === 1 ? "differs" : "differ"} from the query's`;
  if (!known) return `${differ}.`;
  if (!tossed.length) return `${differ}; none of these was a coin toss.`;
  const which = tossed.length === differing.length ? (tossed.length === 1 ? "it" : `all ${tossed.length}`) : `${tossed.length} of these`;
  const verb = tossed.length === 1 ? "was a coin toss" : "were coin tosses";
  return `${differ}; ${which} ${verb}, bits that turn over in 1 of 3 cases or more.`;
}

// Draws two codes, each bit of the query's above its own, what differs marked; returns what is to be said about it.
export function drawComparison(place, own, query) {
  const found = compare(own, query);
  const kind = (n) => (found.tossed.includes(n) ? "differs tossed" : found.differing.includes(n) ? "differs" : "");
  const pair = (_, n) => make("span", { className: `pair ${kind(n)}` }, cell(query, n), cell(own, n));
  place.replaceChildren(...inBytes([...own.bits].map(pair)));
  place.classList.add("code");
  place.classList.toggle("graded", Boolean(own.bit_uncertainty));
  const said = sentence(found, own.bits.length, own.bit_uncertainty !== null || query.bit_uncertainty !== null);
  const named = found.differing.map((n) => `${n + 1}${found.tossed.includes(n) ? " (tossed)" : ""}`);
  const which = named.length ? ` ${counted(named.length, "bit")}: ${named.join(", ")}.` : "";
  place.setAttribute("aria-label", `${said}${which}`);
  return `${said} The query's bits are above its own.`;
}
