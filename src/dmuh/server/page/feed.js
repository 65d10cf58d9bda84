// A list without an end: what comes next is fetched when the end of the page is near. Feeds of the last views are kept,
// so that the back button finds them as they were.

import { at } from "./api.js";
import { remember, remembered } from "./state.js";
import { ensureFocusable, tile } from "./tiles.js";

const KEPT = 12; // feeds of views that were left
const kept = new Map();
let current = null;
let drawItem = null;

export class Feed {
  // fetchPart(n) gives the images behind the first n: {images, done}
  constructor(fetchPart, about = {}) {
    this.fetchPart = fetchPart;
    this.about = about; // what the view knows beside the images
    this.images = [];
    this.done = false;
    this.fetching = null;
  }

  next() {
    this.fetching ??= this.fetchPart(this.images.length)
      .then(({ images, done }) => {
        const known = new Set(this.images.map((image) => image.id));
        const fresh = images.filter((image) => !known.has(image.id));
        this.images.push(...fresh);
        this.done = done;
        return fresh;
      })
      .finally(() => {
        this.fetching = null;
      });
    return this.fetching;
  }

  // as many as were there before the page was loaded anew
  async begin() {
    const before = Math.min(remembered("shown") ?? 0, 1000);
    do await this.next();
    while (!this.done && this.images.length < before);
    return this;
  }

  drop(ids) {
    const left = this.about.without ?? ((image) => (ids.has(image.id) ? null : image)); // groups lose some of theirs
    this.images = this.images.map((image) => left(image, ids)).filter(Boolean);
  }
}

// the feed of an address, or a new one
export function feedOf(address, create) {
  const feed = kept.get(address) ?? create();
  kept.delete(address);
  kept.set(address, feed);
  if (kept.size > KEPT) kept.delete(kept.keys().next().value);
  return feed;
}

export const forgetFeeds = () => kept.clear();
export const forget = (address) => kept.delete(address);

export function dropImages(ids) {
  for (const feed of kept.values()) feed.drop(ids);
}

export function show(feed, draw = (image) => tile(image)) {
  current = feed;
  drawItem = draw;
  at("results").replaceChildren(...feed.images.map(draw));
  at("results").removeAttribute("aria-busy");
  ensureFocusable();
  fill();
}

export function hide() {
  current = null;
  at("results").replaceChildren();
}

// fetches what comes next and shows it; false at the end
export async function more() {
  const feed = current;
  if (!feed || feed.done) return false;
  const fresh = await feed.next();
  if (feed !== current) return false;
  const known = new Set([...at("results").children].map((item) => item.dataset.id));
  at("results").append(...fresh.filter((image) => !known.has(String(image.id))).map(drawItem));
  remember({ shown: feed.images.length });
  return fresh.length > 0;
}

async function fill() {
  const near = () => at("end").getBoundingClientRect().top < innerHeight + 900;
  try {
    while (near() && (await more()));
  } catch {
    // what is there stays; scrolling tries again
  }
}

new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && fill(), {
  rootMargin: "900px",
}).observe(at("end"));
