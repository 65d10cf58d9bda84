// The page of the service. Views are in the address behind #, so that the browser's back button works:
// #/ asks for an image, #/image/17 searches from an image of the collection, #/uncertain lists the least sure ones.
// ?ranking=hamming before the # asks for that order of the answers.

const at = (id) => document.getElementById(id);
const PAGE = 48; // images of a list that are fetched at a time
const ranking = new URLSearchParams(location.search).get("ranking") ?? "";
let about = { labels: {}, n_bits: 0, match_known: false, uncertainty_percentiles: null };
let upload = null; // the file that was searched with last, to which the back button returns
let turn = 0; // counts the views: an answer that comes after the next view was opened is dropped

class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const response = await fetch(path, options).catch(() => {
    throw new Refused(0, "The service does not answer.");
  });
  if (response.ok) return response.status === 204 ? null : response.json();
  const { error } = await response.json().catch(() => ({ error: response.statusText }));
  throw new Refused(response.status, `${capital(error)}.`);
}

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function say(text, wrong = false) {
  at("status").textContent = text;
  at("status").classList.toggle("wrong", wrong);
}

const counted = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

// a probability as people say it: 3 of 10 cases, 4 of 100, 2 of 1,000
function cases(probability) {
  const whole = [10, 100, 1000].find((n) => probability * n >= 0.95);
  if (!whole) return "fewer than 1 of 1,000 cases";
  return `${Math.round(probability * whole)} of ${whole.toLocaleString("en")} cases`;
}

// how many bits of a code may turn over: the sum of their probabilities, of which an image has the mean
function unsureBits({ uncertainty }) {
  if (uncertainty === null) return null;
  return `about ${(uncertainty * about.n_bits).toFixed(1)} of ${about.n_bits} bits may turn over`;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function parameters(values) {
  const given = Object.entries({ label: at("label").value, ...values }).filter(([, value]) => value !== "");
  return new URLSearchParams(given).toString();
}

// the percentage of the collection's images that have a smaller uncertainty, which says more than the number
function lessSureThan(uncertainty) {
  const percentiles = about.uncertainty_percentiles;
  if (uncertainty === null || !percentiles) return null;
  return Math.min(99, Math.max(0, percentiles.findLastIndex((value) => value < uncertainty)));
}

const filters = () =>
  parameters({ k: at("k").value, radius: at("radius").value, at_least: at("at-least").value, ranking });

// ---- drawing ----

function drawCode(query) {
  const unsure = query.bit_uncertainty;
  const bits = [...query.bits].map((bit, n) => {
    const cell = make("span", { className: `bit ${bit === "1" ? "one" : "zero"}` }, make("i"), make("b"));
    if (unsure) {
      cell.style.setProperty("--unsure", Math.min(1, 2 * unsure[n])); // of a coin toss, which is as unsure as can be
      cell.title = `bit ${n + 1} is ${bit}, turns over in ${cases(unsure[n])}`;
    }
    return cell;
  });
  const bytes = [];
  for (let n = 0; n < bits.length; n += 8) bytes.push(make("span", { className: "byte" }, ...bits.slice(n, n + 8)));
  at("code").replaceChildren(...bytes);
  at("code").classList.toggle("graded", Boolean(unsure));
  let least = "";
  if (unsure) {
    const n = unsure.indexOf(Math.max(...unsure));
    least = `; the least sure, bit ${n + 1}, turns over in ${cases(unsure[n])}`;
  }
  at("code").setAttribute("aria-label", `Code ${query.bits}${least}`);
  at("code-facts").textContent = unsure
    ? "The fainter a bit and the longer its bar, the likelier it turns over."
    : "How sure each bit is was not kept.";
}

function picture(image, source, alt) {
  image.onload = () => image.classList.toggle("small", image.naturalWidth <= 32);
  image.onerror = () => image.parentElement.classList.add("missing");
  image.alt = alt;
  image.src = source;
}

function drawQuery(query, title, source) {
  at("query-title").textContent = title;
  const labels = query.labels?.length ? `Labelled ${query.labels.join(", ")}. ` : "";
  const share = lessSureThan(query.uncertainty);
  const compared = share === null ? "" : `, more than for ${share}% of the collection`;
  const sure = unsureBits(query) ?? "it is not known how sure its bits are";
  at("query-facts").textContent = `${labels}${capital(sure)}${compared}.`;
  at("query-image").parentElement.classList.remove("missing");
  picture(at("query-image"), source, title);
  drawCode(query);
  at("query").hidden = false;
  at("ask").classList.add("asked");
}

const shownDistance = (image) => {
  const bits = Number.isInteger(image.distance) ? image.distance : image.distance.toFixed(1);
  return `${bits} ${Number(bits) === 1 ? "bit" : "bits"} apart`;
};

// what is said of an image below it, one line each: the text, more about it, and its class
function factsOf(image) {
  const share = lessSureThan(image.uncertainty);
  const sure = share === null ? [] : [[`less sure than ${share}%`, unsureBits(image), ""]];
  if (image.distance === undefined) return sure;
  const differ = `${image.hamming} of ${about.n_bits} bits differ`;
  if (image.identical) return [["the same image", differ, "likely"], ...sure];
  const apart = [shownDistance(image), differ, ""];
  if (image.match === null) return [apart, ...sure];
  return [[image.likely, `shares a label in ${cases(image.match)}`, "likely"], apart, ...sure];
}

function tile(image) {
  const labels = image.labels.join(", ");
  const from = make("button", { className: "from", title: image.path });
  const facts = factsOf(image);
  const said = image.distance === undefined ? [] : facts.map(([text]) => text);
  from.setAttribute("aria-label", [`Search from image ${image.id}`, ...image.labels, ...said].join(", "));
  const shown = make("img", { loading: "lazy" });
  from.append(shown);
  picture(shown, `/api/images/${image.id}/thumbnail`, "");
  from.onclick = () => {
    location.hash = `#/image/${image.id}`;
  };
  const remove = make("button", { className: "delete", textContent: "✕", title: "Delete from the collection" });
  remove.setAttribute("aria-label", `Delete image ${image.id}`);
  const name = make("strong", { textContent: labels || image.path.split("/").pop() });
  const item = make("li", {}, from, make("div", { className: "name" }, name, remove));
  item.classList.toggle("identical", Boolean(image.identical));
  item.append(
    ...facts.map(([text, more, kind]) => make("div", { className: `fact ${kind}`, textContent: text, title: more })),
  );
  remove.onclick = () => confirmDelete(item, image, remove);
  return item;
}

function confirmDelete(item, image, remove) {
  if (remove.textContent === "✕") {
    remove.textContent = "Delete?";
    remove.onblur = () => {
      remove.textContent = "✕";
    };
    return;
  }
  remove.disabled = true;
  ask(`/api/images/${image.id}`, { method: "DELETE" })
    .then(async () => {
      item.remove();
      await learn();
      say(`Image ${image.id} is deleted; ${counted(about.images, "image")} left.`);
      at("results-title").focus();
    })
    .catch(failed);
}

// ---- views ----

function begin(title, { searching, uncertain = false }) {
  at("to-search").toggleAttribute("aria-current", !uncertain);
  at("to-uncertain").toggleAttribute("aria-current", uncertain);
  at("ask").hidden = uncertain;
  at("more").hidden = true;
  for (const element of document.querySelectorAll(".search-only")) element.hidden = !searching;
  at("at-least").parentElement.hidden = !searching || !about.match_known;
  at("results-title").textContent = title;
  at("results").setAttribute("aria-busy", "true"); // what was found before stays until the answer is here
  say("Looking …");
  turn += 1;
  return turn;
}

function drawTiles(images) {
  at("results").replaceChildren(...images.map(tile));
  at("results").removeAttribute("aria-busy");
}

function drawMatches({ matches, left_out: leftOut, best }) {
  drawTiles(matches);
  if (matches.length) {
    const less = leftOut ? ` ${counted(leftOut, "less likely one")} left out.` : "";
    say(`${counted(matches.length, "image")}, nearest first.${less}`);
  } else if (leftOut) {
    say(`Nothing close enough: the likeliest of the nearest images shares a label in ${cases(best)}.`);
  } else {
    say("No image is near.");
  }
}

async function searchFrom(id) {
  const view = begin("Nearest images", { searching: true });
  const answer = await ask(`/api/search?id=${id}&${filters()}`);
  if (view !== turn) return;
  at("add").hidden = true;
  drawQuery(answer.query, `Image ${id}`, `/api/images/${id}/thumbnail`);
  drawMatches(answer);
}

async function searchUpload() {
  const view = begin("Nearest images", { searching: true });
  const type = upload.type || "application/octet-stream";
  const answer = await ask(`/api/search?${filters()}`, { method: "POST", body: upload, headers: { "content-type": type } });
  if (view !== turn) return;
  URL.revokeObjectURL(at("query-image").src);
  at("add").hidden = false;
  drawQuery(answer.query, upload.name || "Your image", URL.createObjectURL(upload));
  drawMatches(answer);
}

async function list(order, title, offset = 0) {
  const uncertain = order === "uncertainty";
  const view = offset ? turn : begin(title, { searching: false, uncertain });
  const n = uncertain ? PAGE : 24;
  const { images } = await ask(`/api/images?${parameters({ order, n, offset })}`);
  if (view !== turn) return;
  if (offset) at("results").append(...images.map(tile));
  else drawTiles(images);
  const hint = uncertain ? "Those the model is least sure of come first." : "";
  say(images.length || offset ? hint || "Some of the images: choose one to search from." : "There are no images yet.");
  at("more").hidden = !uncertain || images.length < n;
  at("more").onclick = () => list(order, title, offset + n).catch(failed);
}

async function learn() {
  about = await ask("/api/about");
  const chosen = at("label").value;
  const labels = Object.entries(about.labels);
  at("label").replaceChildren(
    new Option("all", ""),
    ...labels.map(([label, n]) => new Option(`${label} (${n.toLocaleString("en")})`, label)),
  );
  at("label").value = chosen in about.labels ? chosen : "";
  at("known-labels").replaceChildren(...labels.map(([label]) => new Option(label)));
  at("facts").textContent = `${counted(about.images, "image")} as codes of ${about.n_bits} bits, by ${about.method}.`;
}

function failed(error) {
  say(error.message, true);
  if (error.status === 401) at("token").showModal();
  else if (!(error instanceof Refused)) throw error;
}

async function show() {
  const image = /^#\/image\/(\d+)$/.exec(location.hash);
  if (image) return searchFrom(image[1]);
  if (location.hash === "#/uncertain") return list("uncertainty", "Least sure images");
  if (upload) return searchUpload();
  at("query").hidden = true;
  at("ask").classList.remove("asked");
  return list("random", "Where to begin");
}

function lost(error) {
  drawTiles([]);
  failed(error);
}

const refresh = () => show().catch(lost);

// ---- what a person does ----

function take(file) {
  if (!file) return;
  upload = file;
  if (location.hash === "#/") refresh();
  else location.hash = "#/";
}

at("file").onchange = (event) => {
  take(event.target.files[0]);
  event.target.value = ""; // so that the same file can be chosen again
};
at("to-search").onclick = () => {
  upload = null;
  if (location.hash === "#/") refresh();
};
document.ondragover = (event) => {
  event.preventDefault();
  at("drop").classList.add("over");
};
document.ondragleave = () => at("drop").classList.remove("over");
document.ondrop = (event) => {
  event.preventDefault();
  at("drop").classList.remove("over");
  take(event.dataTransfer.files[0]);
};
document.onpaste = (event) => take([...event.clipboardData.files].find((file) => file.type.startsWith("image/")));
at("filters").onchange = refresh;
at("filters").onsubmit = (event) => event.preventDefault();
at("add").onsubmit = async (event) => {
  event.preventDefault();
  const name = (upload.name || "").slice(0, 200);
  const given = new URLSearchParams([["label", at("add-label").value], ["name", name]].filter(([, value]) => value));
  const type = upload.type || "application/octet-stream";
  try {
    const image = await ask(`/api/images?${given}`, { method: "POST", body: upload, headers: { "content-type": type } });
    await learn();
    await searchUpload();
    say(`Added as image ${image.id}; ${counted(about.images, "image")} now.`);
  } catch (error) {
    failed(error);
  }
};

async function enter(token) {
  await ask("/api/session", { method: "POST", headers: { authorization: `Bearer ${token}` } });
  await learn();
  await show();
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

window.onhashchange = refresh;
const shown = /^#token=(.+)$/.exec(location.hash);
if (shown) history.replaceState(null, "", "#/");
(shown ? enter(decodeURIComponent(shown[1])) : learn().then(show)).catch(lost);
