// Images are removed from the collection at once, and can be brought back.

import { ask, at, learn, make, say } from "./api.js";
import { dropImages } from "./feed.js";
import { allTiles, ensureFocusable, focusTile, imageOf } from "./tiles.js";
import { capital, counted } from "./words.js";

const AT_ONCE = 4; // requests
let undoing = null; // what undoes the last thing that was done
let afterUndo = async () => {};
let afterRemoval = () => {};

export function onRemoval(changed, undone) {
  afterRemoval = changed;
  afterUndo = undone;
}

// Calls `work` for each, a few at a time; returns those for which it succeeded, and what the first failure said.
async function forEach(images, work) {
  const waiting = [...images];
  const done = [];
  let wrong = null;
  const worker = async () => {
    for (let image = waiting.shift(); image; image = waiting.shift()) {
      try {
        await work(image);
        done.push(image);
      } catch (error) {
        if (error.status === 404) done.push(image); // somebody else was quicker
        else wrong ??= error;
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return [done, wrong];
}

export async function removeImages(images) {
  if (!images.length) return;
  const all = allTiles();
  const next = all.slice(all.findIndex((item) => imageOf(item).id === images[0].id)).find(
    (item) => !images.some((image) => image.id === imageOf(item).id),
  );
  const [done, wrong] = await forEach(images, (image) => ask(`/api/images/${image.id}`, { method: "DELETE" }));
  const ids = new Set(done.map((image) => image.id));
  dropImages(ids);
  for (const item of allTiles()) if (ids.has(imageOf(item).id)) item.remove();
  ensureFocusable();
  if (!document.querySelector("dialog[open]")) focusTile(next);
  const settled = learn().then(() => afterRemoval(ids));
  const yours = done.some((image) => !image.path.startsWith("added/")) ? " Your files stay where they are." : "";
  // it can be undone as soon as it is seen to be done; what follows from the removal comes first all the same
  const restore = () => settled.then(() => bringBack(done));
  toast(`${capital(counted(done.length, "image"))} removed from the collection.${yours}`, done.length ? restore : null);
  await settled;
  if (wrong) say(wrong.message, true);
}

async function bringBack(images) {
  const [done, wrong] = await forEach(images, (image) => ask(`/api/images/${image.id}/restore`, { method: "POST" }));
  await learn();
  await afterUndo(done);
  toast(`${capital(counted(done.length, "image"))} brought back.`);
  if (wrong) say(wrong.message, true);
}

async function undo() {
  const act = undoing;
  undoing = null;
  await act?.();
}

// Says what was done, and how it is undone, if it can be.
export function toast(text, undo = null) {
  undoing = undo;
  at("toast").hidden = false;
  at("toast-text").replaceChildren(make("span", { textContent: text }));
  at("undo").hidden = !undo;
}

at("undo").onclick = undo;
at("toast-close").onclick = () => {
  at("toast").hidden = true;
};
document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "z" || !(event.ctrlKey || event.metaKey)) return;
  if (event.target.closest("input:not([type=checkbox]), textarea") || !undoing) return;
  event.preventDefault();
  undo();
});
