// Numbers as people say them.

import { about } from "./api.js";

export const counted = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
export const nameOf = (image) => image.metadata?.name || image.path.split("/").pop();
export const captionOf = (image) => image.labels.join(", ") || nameOf(image);

export function listed(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

// a probability: 3 of 10 cases, 4 of 100, 2 of 1,000
export function cases(probability) {
  const whole = [10, 100, 1000].find((n) => probability * n >= 0.95);
  if (!whole) return "fewer than 1 of 1,000 cases";
  return `${Math.round(probability * whole)} of ${whole.toLocaleString("en")} cases`;
}

// how many bits of a code may turn over: the sum of their probabilities
function unsureBits(probabilities) {
  const n = probabilities.reduce((sum, probability) => sum + probability, 0);
  return `about ${n < 3 ? n.toFixed(1) : Math.round(n)} of its ${about.n_bits} bits may turn over`;
}

// the percentage of the collection's images that have a smaller uncertainty
function lessSureThan({ uncertainty }) {
  const percentiles = about.uncertainty_percentiles;
  if (uncertainty === null || !percentiles) return null;
  return Math.min(99, Math.max(0, percentiles.findLastIndex((value) => value < uncertainty)));
}

const SURE = [
  [98, "among the least sure 2%"],
  [90, "among the least sure 10%"],
  [60, "less sure than most"],
  [30, "as sure as most"],
  [0, "surer than most"],
];

// how sure an image is, beside the others
export function sureness(image) {
  const share = lessSureThan(image);
  return share === null ? "" : SURE.find(([from]) => share >= from)[1];
}

export function surenessAtLength(image) {
  if (image.uncertainty === null) return about.no_uploads ? "" : "It is not known how sure its bits are.";
  const compared = image.text ? "" : sureness(image); // a text is no image, to be compared with images
  const said = [compared, image.bit_uncertainty === null ? "" : unsureBits(image.bit_uncertainty)];
  return `${capital(said.filter(Boolean).join(": "))}.`;
}

export const bitsApart = (image) => {
  const bits = Number.isInteger(image.distance) ? image.distance : image.distance.toFixed(1);
  return `${bits} ${Number(bits) === 1 ? "bit" : "bits"} apart`;
};

// how near a match is, in a word or two
export function nearness(image) {
  if (image.distance === undefined) return "";
  if (image.identical) return "the same image";
  return image.likely ?? bitsApart(image);
}

export function nearnessAtLength(image) {
  if (image.distance === undefined) return "";
  if (image.identical) return "The same image as the query.";
  const apart = `${bitsApart(image)}, ${image.hamming} of ${about.n_bits} differ`;
  return image.match === null ? `${capital(apart)}.` : `${capital(image.likely)}: shares a label in ${cases(image.match)} (${apart}).`;
}
