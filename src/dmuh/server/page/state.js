// What is shown stands in the address behind #, so that back, reload and links work:
//   #/  where to begin    #/image/17  the nearest of an image    #/upload/1  those of an image of the user's
//   #/code/8f37…  those of a code, in hexadecimal digits    #/search?text=two+dogs  those that a sentence describes
//   #/uncertain  #/map  #/duplicates  #/labels
// and behind a ? the filters, and the image that is open large: #/image/17?label=cats&open=23

const VIEWS = ["uncertain", "map", "duplicates", "labels"];
export const FILTERS = ["by", "label", "order", "at_least", "radius", "ranking"];
const KEYS = ["text", ...FILTERS, "decided", "colour", "area", "group", "open"];

export function read(hash = location.hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?");
  const [, first = "", id = ""] = path.split("/");
  const given = new URLSearchParams(query);
  const state = Object.fromEntries(KEYS.map((key) => [key, given.get(key) ?? ""]));
  const isNumber = /^\d{1,18}$/.test(id);
  state.view = VIEWS.includes(first) ? first : "search";
  state.from = first === "image" && isNumber ? id : "";
  state.upload = first === "upload" && isNumber ? id : "";
  state.code = first === "code" && /^[0-9a-f]{2,2048}$/.test(id) ? id : "";
  if (state.view !== "search" || state.from || state.upload || state.code || !state.text.trim()) state.text = "";
  if (!/^\d{1,18}$/.test(state.open)) state.open = "";
  return state;
}

export function write(state) {
  let path = state.view === "search" ? "" : state.view;
  if (state.from) path = `image/${state.from}`;
  if (state.upload) path = `upload/${state.upload}`;
  if (state.code) path = `code/${state.code}`;
  if (state.text) path = "search";
  const given = new URLSearchParams(KEYS.filter((key) => state[key]).map((key) => [key, state[key]]));
  return `#/${path}${given.size ? `?${given}` : ""}`;
}

// the part of a state that a list belongs to: all of it but the image that is open
export const listOf = (state) => write({ ...state, open: "" });

// an address that changes some of the present one
export const changed = (change) => write({ ...read(), ...change });

const EMPTY = Object.fromEntries(KEYS.map((key) => [key, ""]));
// the nearest of an image, by the filters that hold for any search
export function searchFrom(id) {
  const { by, label, at_least, radius, ranking } = read();
  return write({ ...EMPTY, view: "search", upload: "", from: String(id), by, label, at_least, radius, ranking });
}

let arrived = () => {};

export function onArrival(listener) {
  arrived = listener;
  window.addEventListener("popstate", () => listener({ back: true }));
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href^='#/']");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(link.getAttribute("href"));
  });
}

// how many steps back stay on this page
export const depth = () => history.state?.depth ?? 0;

// From one open image to another is no step: back leads to the list. An address that is there already is shown anew.
export function go(hash, { replace = false } = {}) {
  const opened = Boolean(read(hash).open);
  const anew = write(read(hash)) === write(read());
  if (replace || (opened && read().open)) history.replaceState(history.state, "", hash);
  else history.pushState({ ...(opened ? history.state : {}), depth: depth() + 1, opened }, "", hash);
  arrived({ back: false, anew, quiet: anew && replace });
}

// what belongs to this step of the history, such as how far it was scrolled
export const remember = (values) => history.replaceState({ ...history.state, ...values }, "");
export const remembered = (key) => history.state?.[key];
