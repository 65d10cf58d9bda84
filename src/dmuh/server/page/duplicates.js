// Images that are the same or nearly so, in groups, with the one to keep.

import { ask, at, make, query, say } from "./api.js";
import { Feed, feedOf, forget, more, show } from "./feed.js";
import { selectImages, selectNone } from "./selection.js";
import { go, listOf, read } from "./state.js";
import { allTiles, imageOf, tile } from "./tiles.js";
import { counted } from "./words.js";

const PART = 24;

export const duplicates = {
  title: () => "Duplicates",
  filters: () => [],
  leave: () => at("stage").replaceChildren(),
  open: (state) =>
    feedOf(listOf(state), () => {
      const feed = new Feed(async (offset) => {
        const { groups, ...others } = await ask(`/api/duplicates?${query({ n: PART, offset })}`);
        Object.assign(feed.about, others);
        return { images: groups.map((group) => ({ ...group, id: group.images[0].id })), done: groups.length < PART };
      }, { total: 0, without });
      return feed;
    }),
  draw(feed, state) {
    show(feed, drawGroup);
    const { total, working, by } = feed.about;
    if (working) {
      forget(listOf(state));
      setTimeout(() => listOf(read()) === listOf(state) && go(location.hash, { replace: true }), 1000);
    }
    say(working ? "Looking for duplicates …" : said(total, by));
    const choose = make("button", { id: "select-others", textContent: "Select all but the best of each group" });
    choose.onclick = selectOthers;
    at("stage").replaceChildren(...(total ? [make("div", {}, choose)] : []));
  },
  afterRemoval() {
    for (const group of document.querySelectorAll(".group")) {
      if (group.querySelectorAll(".photo").length < 2) group.remove();
    }
  },
};

function said(total, by) {
  const near = by === "features" ? "" : " Near duplicates are found by dmuh open, or dmuh duplicates.";
  return `${total ? `${counted(total, "image")} ${total === 1 ? "is" : "are"} there more than once.` : "No image is there twice."}${near}`;
}

function without(group, ids) {
  const images = group.images.filter((image) => !ids.has(image.id));
  const kinds = group.kinds.filter((_, n) => !ids.has(group.images[n].id));
  return images.length > 1 ? { ...group, images, kinds } : null;
}

function drawGroup(group) {
  const choose = make("button", { textContent: "Select the others" });
  choose.onclick = () => selectImages(group.images.filter((image) => image.id !== group.best));
  const tiles = group.images.map((image, n) => {
    const item = tile(image, image.id === group.best ? `keep: ${group.reason}` : group.kinds[n]);
    item.classList.toggle("best", image.id === group.best);
    return item;
  });
  const title = make("h2", { textContent: `${counted(group.images.length, "image")}, ${group.kinds.includes("near") ? "nearly the same" : "the same"}` });
  const item = make("li", { className: "group" }, make("div", {}, title, choose), make("ul", { className: "photos" }, ...tiles));
  item.dataset.id = group.id;
  return item;
}

// of all groups, also of those that were not scrolled to
async function selectOthers() {
  while (await more());
  selectNone();
  selectImages(allTiles().filter((item) => !item.classList.contains("best")).map(imageOf));
}
