// Which images are selected, and what is done with them.

import { at, make } from "./api.js";
import { removeImages } from "./removal.js";
import { allTiles, imageOf } from "./tiles.js";
import { counted } from "./words.js";

const selected = new Map();
let anchor = null; // where a range begins

export const isSelected = (id) => selected.has(id);
export const selection = () => [...selected.values()];

export function select(id, on = true) {
  anchor = id;
  mark([id], on);
}

// all from where the last one was selected, or `from`, to this one
export function selectTo(id, on, from = null) {
  anchor = anchor ?? from ?? id;
  const ids = allTiles().map((item) => imageOf(item).id);
  const [first, last] = [ids.indexOf(anchor), ids.indexOf(id)].sort((a, b) => a - b);
  mark(first < 0 ? [id] : ids.slice(first, last + 1), on);
}

export const selectImages = (images) => mark(images.map((image) => image.id), true);

export function selectNone() {
  anchor = null;
  mark([...selected.keys()], false);
}

export const selectAll = () => mark(allTiles().map((item) => imageOf(item).id), true);

function mark(ids, on) {
  const wanted = new Set(ids);
  for (const id of ids) if (!on) selected.delete(id);
  for (const item of allTiles()) {
    const image = imageOf(item);
    if (!wanted.has(image.id)) continue;
    if (on) selected.set(image.id, image);
    item.classList.toggle("selected", on);
    item.querySelector(".pick").checked = on;
  }
  draw();
}

function draw() {
  at("selection").hidden = !selected.size;
  document.body.classList.toggle("selecting", selected.size > 0);
  at("selected").textContent = selected.size ? `${counted(selected.size, "image")} selected` : "";
}

// A file with one path per line.
export function savePaths(images, name = "selected.txt") {
  const text = images.map((image) => `${image.path}\n`).join("");
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/plain" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

at("select-none").onclick = selectNone;
at("select-all").onclick = selectAll;
at("export").onclick = () => savePaths(selection());
at("delete").onclick = removeSelected;

function removeSelected() {
  const images = selection();
  selectNone();
  removeImages(images);
}

document.addEventListener("keydown", (event) => {
  if (event.target.closest("input:not([type=checkbox]), select, textarea, dialog")) return;
  if (event.key === "Escape" && selected.size) selectNone();
  else if (event.key === "Delete" && selected.size) removeSelected();
  else if (event.key.toLowerCase() === "a" && (event.ctrlKey || event.metaKey) && allTiles().length) {
    event.preventDefault();
    selectAll();
  }
});
