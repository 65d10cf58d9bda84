// One image, large: arrows lead to its neighbours in the list behind it, Escape closes it.

import { ask, at, make, picture, query, thumbnail } from "./api.js";
import { drawCode, drawComparison } from "./code.js";
import { more } from "./feed.js";
import { removeImages } from "./removal.js";
import { isSelected, select } from "./selection.js";
import { changed, depth, go, read, remembered, searchFrom } from "./state.js";
import { allTiles, focusTile, imageOf, tileOf } from "./tiles.js";
import { captionOf, nameOf, nearness, nearnessAtLength, sureness, surenessAtLength } from "./words.js";

const SIMILAR = 8;
let compared = null; // the query of the list behind, whose code is compared
let shown = null;

export const compareWith = (code) => {
  compared = code;
};
export const isOpen = () => at("viewer").open;

export async function openImage(id) {
  const item = tileOf(id);
  const known = item ? imageOf(item) : null;
  if (!at("viewer").open) {
    at("viewer").showModal();
    at("viewer-title").focus();
  }
  if (known) draw(known);
  const image = known ?? (await ask(`/api/images/${id}`).catch((error) => missing(error)));
  if (read().open !== String(id) || !image) return;
  if (!known) draw(image);
  await drawSimilar(image);
}

export function closeViewer() {
  if (!at("viewer").open) return;
  at("viewer").close();
  const item = shown && tileOf(shown.id);
  shown = null;
  at("viewer-image").removeAttribute("src");
  if (item) focusTile(item);
  else at("title").focus({ preventScroll: true });
}

function missing(error) {
  at("viewer-title").textContent = error.message;
  for (const part of ["path", "likely", "sure", "differs"]) at(`viewer-${part}`).textContent = "";
  for (const part of ["labels", "bits", "strip"]) at(`viewer-${part}`).replaceChildren();
  at("viewer-image").removeAttribute("src");
  return null;
}

function draw(image) {
  shown = image;
  const name = nameOf(image);
  const large = at("viewer-image");
  picture(large, `/api/images/${image.id}/picture`, `Image ${image.id}: ${captionOf(image)}`);
  large.onerror = () => picture(large, thumbnail(image.id), large.alt); // a kind of file that browsers do not show
  at("viewer-title").textContent = name;
  at("viewer-path").textContent = image.path === name ? `Image ${image.id}` : image.path;
  at("viewer-labels").replaceChildren(
    ...image.labels.map((label) =>
      make("li", {}, make("a", { href: changed({ label, open: "" }), textContent: label, title: "Only this label" })),
    ),
  );
  at("viewer-likely").textContent = nearnessAtLength(image);
  at("viewer-sure").textContent = surenessAtLength(image);
  at("viewer-similar").href = searchFrom(image.id);
  at("viewer-file").href = `/api/images/${image.id}/file`;
  at("viewer-select").checked = isSelected(image.id);
  at("viewer-select").disabled = !tileOf(image.id);
  const beside = compared && compared.bits.length === image.bits.length && compared.id !== image.id;
  at("viewer-differs").textContent = beside
    ? drawComparison(at("viewer-bits"), image, compared)
    : drawCode(at("viewer-bits"), image);
  at("viewer-strip").replaceChildren();
  const item = tileOf(image.id);
  const all = allTiles();
  at("previous").disabled = !item || item === all[0];
  at("next").disabled = !item || (item === all.at(-1) && !at("results").contains(item));
}

async function drawSimilar(image) {
  const { matches } = await ask(`/api/search?${query({ id: image.id, k: SIMILAR, ranking: read().ranking })}`).catch(
    () => ({ matches: [] }),
  );
  if (shown?.id !== image.id) return;
  at("viewer-strip").replaceChildren(
    ...matches.map((match) => {
      const small = make("img", { alt: "" });
      const link = make("a", { href: changed({ open: String(match.id) }), title: captionOf(match) }, small);
      link.setAttribute("aria-label", [`Image ${match.id}`, captionOf(match), nearness(match) || sureness(match)].join(", "));
      picture(small, thumbnail(match.id));
      return make("li", {}, link, make("small", { textContent: nearness(match) }));
    }),
  );
}

async function step(by) {
  const item = shown && tileOf(shown.id);
  if (!item) return;
  let all = allTiles();
  let other = all[all.indexOf(item) + by];
  if (!other && by > 0 && (await more())) {
    all = allTiles();
    other = all[all.indexOf(item) + by];
  }
  if (other) go(changed({ open: String(imageOf(other).id) }), { replace: true });
}

// to the next image, or back to the list behind the last one: for views in which an image is done with
export async function stepOn() {
  const before = read().open;
  await step(1);
  if (read().open === before) leave();
}

// back to the list: to the step of the history before the image was opened, if that is this page's
function leave() {
  if (depth() && remembered("opened")) history.back();
  else go(changed({ open: "" }), { replace: true });
}

at("previous").onclick = () => step(-1);
at("next").onclick = () => step(1);
at("viewer-close").onclick = leave;
at("viewer-select").onchange = (event) => select(shown.id, event.target.checked);
at("viewer-delete").onclick = async () => {
  const image = shown;
  const all = allTiles();
  const n = all.indexOf(tileOf(image.id));
  const next = n < 0 ? null : (all[n + 1] ?? all[n - 1]);
  if (next) go(changed({ open: String(imageOf(next).id) }), { replace: true });
  else leave();
  await removeImages([image]);
};
at("viewer").addEventListener("cancel", (event) => {
  event.preventDefault();
  leave();
});
at("viewer").addEventListener("click", (event) => {
  if (event.target === at("viewer") || event.target === at("viewer-picture")) leave();
});
document.addEventListener("keydown", (event) => {
  if (!isOpen() || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "ArrowLeft") step(-1);
  else if (event.key === "ArrowRight") step(1);
  else if (event.key === "x" && !at("viewer-select").disabled) at("viewer-select").click();
  else if (event.key === "s") at("viewer-similar").click();
  else if (event.key === "Delete") at("viewer-delete").click();
  else return;
  event.preventDefault();
});

// a finger that moves sideways
let touched = null;
at("viewer-picture").addEventListener("pointerdown", (event) => {
  touched = event.pointerType === "touch" ? event.clientX : null;
});
at("viewer-picture").addEventListener("pointerup", (event) => {
  if (touched !== null && Math.abs(event.clientX - touched) > 60) step(event.clientX < touched ? 1 : -1);
  touched = null;
});
