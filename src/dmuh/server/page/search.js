// Where to begin, and the nearest images of one of the collection or of one that the user has.

import { about, ask, at, learn, picture, query, say, send, thumbnail } from "./api.js";
import { drawCaptions } from "./captions.js";
import { drawCode } from "./code.js";
import { Feed, feedOf, forgetFeeds, show } from "./feed.js";
import { changed, go, listOf, read, remember, remembered } from "./state.js";
import { toast } from "./removal.js";
import { capital, captionOf, cases, counted, nameOf, surenessAtLength } from "./words.js";
import { compareWith } from "./viewer.js";

const STEPS = [60, 240, 1000]; // how many of the nearest are asked for, as the page is scrolled
const LISTED = 96;
const uploads = []; // the user's images, by their number in the address

export function takeUpload(file) {
  if (!file) return;
  if (about.no_uploads) {
    say(`${capital(about.no_uploads)}.`, true);
    return;
  }
  uploads.push({ file, source: URL.createObjectURL(file) });
  const { by, label, at_least, radius, ranking } = read();
  go(changed({ view: "search", from: "", code: "", text: "", upload: String(uploads.length), open: "", order: "", by, label, at_least, radius, ranking }));
}

// a value that another program computed, or a code
at("by-code").onsubmit = (event) => {
  event.preventDefault();
  const digits = at("code-text").value.trim().toLowerCase().replace(/^0x/, "");
  const wanted = 2 * Math.ceil(about.n_bits / 8);
  if (digits.length !== wanted || /[^0-9a-f]/.test(digits)) {
    say(`The ${about.method} of an image has ${wanted} hexadecimal digits here.`, true);
    return;
  }
  const { label, radius } = read();
  go(changed({ view: "search", from: "", upload: "", text: "", code: digits, open: "", order: "", label, radius }));
};

// what the images show, in words
at("by-text").onsubmit = (event) => {
  event.preventDefault();
  const text = at("text").value.trim();
  if (!text) return;
  const { label, at_least, radius, ranking } = read();
  const none = { from: "", upload: "", code: "", open: "", order: "", by: "", decided: "", colour: "", area: "", group: "" };
  go(changed({ ...none, view: "search", text, label, at_least, radius, ranking }));
};

const isQuery = (state) => Boolean(state.from || state.upload || state.code || state.text);
const WITH_IMAGE = ["by", "label", "at_least", "radius", "ranking"];
const WITH_TEXT = WITH_IMAGE.slice(1); // codes by class have no texts

export const search = {
  title: (state) => (isQuery(state) ? "Nearest images" : "Where to begin"),
  filters: (state) => (state.text ? WITH_TEXT : isQuery(state) ? WITH_IMAGE : ["label", "order"]),
  leave: () => {
    at("query").hidden = true;
    compareWith(null);
  },
  async open(state) {
    if (!isQuery(state)) return begin(state);
    const upload = uploads[state.upload - 1];
    if (state.upload && !upload) {
      say("A page that is loaded anew has lost the image: choose it again.", true);
      return null;
    }
    return nearest(state, upload);
  },
  draw(feed, state) {
    at("query").hidden = !feed.about.query;
    if (feed.about.query) {
      drawQuery(feed.about.query, uploads[state.upload - 1], state);
      drawCaptions(feed, uploads[state.upload - 1], state);
    }
    show(feed);
    say(feed.about.said(feed));
  },
};

// some images, the same when the page is loaded anew, or all of them
function begin(state) {
  const { label, order } = state;
  if (!remembered("seed")) remember({ seed: 1 + Math.floor(Math.random() * 1e6) });
  const parameters = { label, n: LISTED, ...(order ? { order } : { order: "random", seed: remembered("seed") }) };
  const said = (feed) => {
    if (!feed.images.length) return "There are no images yet.";
    const words = about.no_texts ? "" : "by words or ";
    const other = about.no_uploads ? `by a ${about.method} of your own` : `${words}with an image of your own`;
    return `Choose one to see it large and what is like it, or search ${other}.`;
  };
  return feedOf(`${listOf(state)} ${parameters.seed}`, () =>
    new Feed(async (offset) => {
      const { images } = await ask(`/api/images?${query({ ...parameters, ...(order ? { offset } : {}) })}`);
      return { images, done: !order || images.length < LISTED };
    }, { said }),
  );
}

function nearest(state, upload) {
  const { by, label, at_least, radius, ranking } = state;
  return feedOf(listOf(state), () => {
    const feed = new Feed(async (n) => {
      const k = STEPS.find((step) => step > n + feed.about.leftOut) ?? STEPS.at(-1);
      const asked = query({ by, label, at_least, radius, ranking, k });
      const from = query({ code: state.code, text: state.text, id: state.from });
      const answer = await (upload ? send(`/api/search?${asked}`, upload.file) : ask(`/api/search?${from}&${asked}`));
      feed.about.query = answer.query;
      feed.about.best = answer.best;
      feed.about.leftOut = answer.left_out;
      const done = k === STEPS.at(-1) || answer.left_out > 0 || answer.matches.length + answer.left_out < k;
      return { images: answer.matches, done };
    }, { said, leftOut: 0 });
    return feed;
  });
}

function said(feed) {
  const { leftOut, best } = feed.about;
  if (!feed.images.length && leftOut) {
    return `Nothing close enough: the likeliest of the nearest images shares a label in ${cases(best)}.`;
  }
  if (!feed.images.length) return "No image is near.";
  const less = leftOut ? ` ${counted(leftOut, "less likely one")} left out.` : "";
  return feed.done ? `${counted(feed.images.length, "image")}, nearest first.${less}` : `The nearest of ${counted(about.images, "image")}.`;
}

function drawQuery(code, upload, state) {
  const name = state.code || (state.text && `“${state.text}”`) || (upload ? upload.file.name || "Your image" : nameOf(code));
  at("query-title").textContent = name;
  const labels = code.labels?.length ? `${capital(captionOf(code))}. ` : "";
  at("query-facts").textContent = `${labels}${surenessAtLength(code)}`;
  const shown = !state.code && !state.text; // else there is no image of it
  at("query-open").hidden = !shown;
  if (shown) picture(at("query-image"), upload ? upload.source : thumbnail(state.from), "");
  at("query-open").setAttribute("aria-label", upload ? `The query: ${name}` : `Open the query, ${name}`);
  at("query-open").disabled = Boolean(upload);
  at("query-open").onclick = () => go(changed({ open: state.from }));
  at("code-facts").textContent = drawCode(at("code"), code);
  at("add").hidden = !upload;
  at("known-labels").replaceChildren(...Object.keys(about.labels).map((label) => new Option(label)));
  compareWith(code);
}

at("add").onsubmit = async (event) => {
  event.preventDefault();
  const { file } = uploads[read().upload - 1];
  const given = query({ label: at("add-label").value, name: (file.name || "").slice(0, 200) });
  try {
    const image = await send(`/api/images?${given}`, file);
    await learn();
    forgetFeeds();
    go(location.hash, { replace: true });
    toast(`Added as image ${image.id}; ${counted(about.images, "image")} now.`);
  } catch (error) {
    say(error.message, true);
  }
};
