// The page: goes to the view that the address names, takes images to search with, and asks for the token.

import { about, ask, at, learn, make, Refused, say } from "./api.js";
import { duplicates } from "./duplicates.js";
import { forgetFeeds, hide } from "./feed.js";
import { drawFilters } from "./filters.js";
import { labels } from "./labels.js";
import { map } from "./map.js";
import { onRemoval } from "./removal.js";
import { search, takeUpload } from "./search.js";
import { selectNone } from "./selection.js";
import { go, listOf, onArrival, read, remember, remembered } from "./state.js";
import { closeViewer, isOpen, openImage } from "./viewer.js";
import { uncertain } from "./uncertain.js";
import { capital, counted } from "./words.js";

const VIEWS = { search, uncertain, map, duplicates, labels };
let shown = ""; // the address of the list that is there
let view = null;
let turn = 0; // counts the views: an answer that comes after the next view was opened is dropped

async function arrive({ back, anew = false, quiet = false }) {
  const state = read();
  if (!about.n_bits) return; // it is not known yet what is served: the start shows this address
  if (listOf(state) !== shown || anew) {
    if (isOpen() && !state.open) closeViewer();
    await openView(state, back, quiet);
  }
  if (listOf(read()) !== listOf(state) || read().open !== state.open) return; // left meanwhile
  if (state.open) await openImage(Number(state.open));
  else closeViewer();
}

function begin(state, quiet) {
  const next = VIEWS[state.view];
  const first = view === null;
  if (view && (view !== next || shown.split("?")[0] !== listOf(state).split("?")[0])) selectNone();
  view?.leave(next);
  const within = quiet || (view === next && view.staysWithin); // such as another part of the same map
  view = next;
  shown = listOf(state);
  for (const link of document.querySelectorAll("nav a")) link.toggleAttribute("aria-current", link.id === `to-${state.view}`);
  const title = view.title(state);
  document.title = `${title} – dmuh`;
  at("title").textContent = title;
  drawAbout();
  drawFilters(view.filters(state), state);
  at("text").value = state.text;
  at("results").className = state.view; // each view has its own columns
  at("results").setAttribute("aria-busy", "true"); // what was found before stays until the answer is here
  if (!quiet) say("Looking …");
  if (!first && !within && !document.activeElement?.closest("#filters")) at("title").focus({ preventScroll: true });
  return within;
}

async function openView(state, back, quiet = false) {
  turn += 1;
  const own = turn;
  const within = begin(state, quiet);
  if (!back && !within) scrollTo(0, 0);
  const scroll = back ? (remembered("scroll") ?? 0) : 0;
  try {
    const feed = await view.open(state);
    if (own !== turn) return;
    if (feed && !feed.images.length) await feed.begin();
    if (own !== turn) return;
    if (feed) view.draw(feed, state);
    else lost();
    if (back || !within) scrollTo(0, scroll);
  } catch (error) {
    if (own !== turn) return;
    lost();
    failed(error);
  }
}

// what was there belongs to another address
function lost() {
  hide();
  view?.leave(null);
  at("query").hidden = true;
  at("results").removeAttribute("aria-busy");
}

function failed(error) {
  say(error.message, true);
  if (error.status === 401) at("token").showModal();
  else if (!(error instanceof Refused)) throw error;
}

function reload() {
  shown = "";
  return arrive({ back: true });
}

function drawAbout() {
  const why = about.no_uploads ? ` ${capital(about.no_uploads)}.` : "";
  at("facts").textContent = `${counted(about.images, "image")} as codes of ${about.n_bits} bits, by ${about.method}.${why}`;
}

// hashes of another program are searched by their values: there is nothing here that encodes images
function drawEntrance() {
  const none = Boolean(about.no_uploads);
  at("file").disabled = none;
  for (const id of ["file", "drop", "to-uncertain"]) at(id).hidden = none;
  at("by-code").hidden = !none;
  at("by-text").hidden = Boolean(about.no_texts);
  at("code-text").placeholder = `Search by ${about.method}`;
  at("code-text").setAttribute("aria-label", at("code-text").placeholder);
}

// ---- what a person does ----

at("file").onchange = (event) => {
  takeUpload(event.target.files[0]);
  event.target.value = ""; // so that the same file can be chosen again
};
document.ondragover = (event) => {
  event.preventDefault();
  at("drop").classList.add("over");
};
document.ondragleave = () => at("drop").classList.remove("over");
document.ondrop = (event) => {
  event.preventDefault();
  at("drop").classList.remove("over");
  takeUpload(event.dataTransfer.files[0]);
};
document.onpaste = (event) => takeUpload([...event.clipboardData.files].find((file) => file.type.startsWith("image/")));

const afterRemoval = () => {
  drawAbout();
  view.afterRemoval?.();
};
onRemoval(afterRemoval, async () => {
  forgetFeeds();
  remember({ scroll: scrollY });
  await reload();
});

let scrolling = 0;
addEventListener("scroll", () => {
  clearTimeout(scrolling);
  const address = location.hash;
  scrolling = setTimeout(() => location.hash === address && remember({ scroll: scrollY }), 120);
});

const KEYS = [
  ["← → ↑ ↓", "to another image"], ["Enter", "opens it large"], ["Esc", "closes it; selects none"],
  ["x", "selects it"], ["Shift + arrow", "selects from here on"], ["Ctrl + A", "selects all that is shown"],
  ["Delete", "removes what is selected"], ["Ctrl + Z", "brings it back"], ["s", "in the large view: finds similar ones"],
  ["a  k", "in wrong labels: accepts the other label, keeps the given one"], ["?", "shows these keys"],
]; // prettier-ignore
at("keys-list").append(
  ...KEYS.map(([key, does]) => make("tr", {}, make("th", { scope: "row", textContent: key }), make("td", { textContent: does }))),
);
at("show-keys").onclick = () => at("keys").showModal();
document.addEventListener("keydown", (event) => {
  if (event.key === "?" && !event.target.closest("input, select, dialog")) at("keys").showModal();
});
at("skip").onclick = (event) => {
  event.preventDefault(); // the address is that of the view
  (document.querySelector("#main .open[tabindex='0']") ?? at("main")).focus();
};

// ---- start ----

async function start() {
  await learn();
  drawEntrance();
  await arrive({ back: true });
}

async function enter(token) {
  await ask("/api/session", { method: "POST", headers: { authorization: `Bearer ${token}` } });
  await start();
}

at("token").querySelector("form").onsubmit = async (event) => {
  event.preventDefault();
  try {
    await enter(at("token-text").value);
    at("token").close();
  } catch (error) {
    at("token-status").textContent = error.status === 401 ? "This is not the token." : error.message;
  }
};

history.scrollRestoration = "manual";
onArrival((how) => arrive(how).catch(failed));
const token = /^#token=(.+)$/.exec(location.hash);
const ranking = new URLSearchParams(location.search).get("ranking"); // of links from before the address held the filters
if (token) history.replaceState(null, "", "#/");
else if (ranking) history.replaceState(history.state, "", `${location.pathname}${location.hash || "#/"}${location.hash.includes("?") ? "&" : "?"}ranking=${encodeURIComponent(ranking)}`);
(token ? enter(decodeURIComponent(token[1])) : start()).catch((error) => {
  lost();
  failed(error);
});
