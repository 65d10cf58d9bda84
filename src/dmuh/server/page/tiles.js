// Images as tiles: each opens large, and can be selected. One of them takes the focus, arrows lead to the others.

import { at, make, picture, thumbnail } from "./api.js";
import { changed, go } from "./state.js";
import { isSelected, select, selectTo } from "./selection.js";
import { captionOf, nearness, nearnessAtLength, sureness, surenessAtLength } from "./words.js";

const images = new WeakMap(); // of tiles

export const imageOf = (item) => images.get(item);
export const allTiles = () => [...document.querySelectorAll("#main .photo")];
export const tileOf = (id) => document.querySelector(`#main .photo[data-id="${CSS.escape(String(id))}"]`);

// `said` is a line below the image in place of how near or how sure it is
export function tile(image, said = null) {
  const badge = said ?? (nearness(image) || sureness(image));
  const open = make("button", { className: "open", title: image.path, tabIndex: -1 });
  open.setAttribute("aria-label", [`Image ${image.id}`, captionOf(image), badge].filter(Boolean).join(", "));
  const shown = make("img", { loading: "lazy", decoding: "async" });
  open.append(shown);
  picture(shown, thumbnail(image.id));
  const box = make("input", { type: "checkbox", className: "pick", tabIndex: -1, checked: isSelected(image.id) });
  box.setAttribute("aria-label", `Select image ${image.id}`);
  const name = make("span", { className: "name", textContent: captionOf(image) });
  const fact = make("span", { className: "fact", textContent: badge });
  fact.title = [nearnessAtLength(image), surenessAtLength(image)].filter(Boolean).join(" ");
  if (image.likely || image.identical) fact.classList.add(image.identical ? "same" : image.likely.replace(" ", "-"));
  const item = make("li", { className: "photo" }, open, box, name, fact);
  item.dataset.id = image.id;
  item.classList.toggle("selected", box.checked);
  images.set(item, image);
  return item;
}

// The first tile takes the focus, unless another does; to be called when tiles were added or removed.
export function ensureFocusable() {
  const first = document.querySelector("#main .photo");
  if (first && !document.querySelector("#main .open[tabindex='0']")) rove(first);
}

function rove(item) {
  for (const other of document.querySelectorAll("#main .photo [tabindex='0']")) other.tabIndex = -1;
  for (const control of item.querySelectorAll(".open, .pick")) control.tabIndex = 0;
}

export function focusTile(item) {
  if (!item) return;
  rove(item);
  item.querySelector(".open").focus({ preventScroll: true });
  item.scrollIntoView({ block: "nearest" });
}

// the tile an arrow leads to: left and right in the order of the page, up and down to the nearest in that direction
function towards(item, key) {
  const all = allTiles();
  const n = all.indexOf(item);
  if (key === "ArrowLeft") return all[n - 1];
  if (key === "ArrowRight") return all[n + 1];
  if (key === "Home") return all[0];
  if (key === "End") return all.at(-1);
  const own = item.getBoundingClientRect();
  const down = key === "ArrowDown";
  const row = (down ? all.slice(n + 1) : all.slice(0, n).reverse()).filter((other) =>
    down ? other.getBoundingClientRect().top > own.top + 8 : other.getBoundingClientRect().top < own.top - 8,
  );
  const top = row[0]?.getBoundingClientRect().top;
  const away = (other) => Math.abs(other.getBoundingClientRect().left - own.left);
  return row.filter((other) => Math.abs(other.getBoundingClientRect().top - top) < 8).sort((a, b) => away(a) - away(b))[0];
}

at("main").addEventListener("click", (event) => {
  const item = event.target.closest(".photo");
  if (!item) return;
  rove(item);
  const { id } = imageOf(item);
  if (event.target.closest(".pick")) {
    if (event.shiftKey) selectTo(id, event.target.checked);
    else select(id, event.target.checked);
  } else if (event.target.closest(".open")) {
    if (event.shiftKey) selectTo(id, true);
    else if (event.ctrlKey || event.metaKey) select(id, !isSelected(id));
    else go(changed({ open: String(id) }));
  }
});

at("main").addEventListener("keydown", (event) => {
  const item = event.target.closest(".photo");
  if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
  const { id } = imageOf(item);
  if (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End") {
    event.preventDefault();
    const other = towards(item, event.key);
    if (!other) return;
    if (event.shiftKey) selectTo(imageOf(other).id, true, id);
    focusTile(other);
  } else if (event.key === "x") {
    select(id, !isSelected(id));
  }
});
