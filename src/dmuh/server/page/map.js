// The map: every image a point, those with similar codes side by side. An area that is drawn around points, or a group
// from the list, shows its images below.

import { about, ask, at, make, query, say } from "./api.js";
import { Feed, feedOf, hide, show } from "./feed.js";
import { groupsOf, isInside } from "./groups.js";
import { Plane } from "./plane.js";
import { changed, go, listOf, read } from "./state.js";
import { counted, listed } from "./words.js";

const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8d6bd1", "#b3a100", "#7f4f2a", "#e4576b"];
const OTHERS = "#8b949e";
const SURE = [[0, 114, 178], [154, 164, 175], [230, 120, 0]]; // from sure to unsure
const PART = 60;
let points = null; // of the map, as the service gave it, with groups and colours
let plane = null;
let asked = 0;

export const map = {
  title: () => "Map",
  filters: () => ["colour"],
  staysWithin: true,
  leave: (next) => {
    if (next === map) return;
    at("stage").replaceChildren();
    plane = null;
    asked += 1;
  },
  async open(state) {
    if (!plane) build();
    if (!points || points.images !== about.images) await fetchPoints();
    const chosen = chosenIds(state);
    return feedOf(`${listOf({ ...state, colour: "" })} ${about.images}`, () =>
      new Feed(async (n) => {
        const some = chosen?.slice(n, n + PART) ?? [];
        const { images } = some.length ? await ask(`/api/images?${some.map((id) => `id=${id}`).join("&")}`) : { images: [] };
        return { images, done: n + PART >= (chosen?.length ?? 0) };
      }, { chosen }),
    );
  },
  draw(feed, state) {
    if (!plane) return;
    const { chosen } = feed.about;
    points.colours = state.colour ? bySureness() : byLabel();
    plane.show(points, chosen && new Set(chosen), areaOf(state));
    drawLegend(state);
    drawGroups(state);
    if (chosen?.length) show(feed);
    else hide();
    at("results").removeAttribute("aria-busy");
    say(said(chosen));
    if (chosen?.length) reveal();
  },
};

function said(chosen) {
  if (!points.ids.length) return points.working ? "The map is being computed …" : "There are no images yet.";
  if (chosen?.length) return `${counted(chosen.length, "image")} in this part of the map${mostly(chosen.map((id) => points.place.get(id)))}.`;
  if (chosen) return "No image lies there.";
  const rough = points.how === "pca" ? " It shows main directions only: pip install 'dmuh[map]' moves neighbours together." : "";
  return `Draw around images to see them, or click one. Similar ones lie side by side.${points.working ? " New images are being placed." : ""}${rough}`;
}

async function fetchPoints() {
  const own = (asked += 1);
  const answer = await ask("/api/map");
  const { group, middle } = groupsOf(answer.x, answer.y);
  points = { ...answer, group, middle, images: about.images, place: new Map(answer.ids.map((id, i) => [id, i])) };
  if (answer.working) setTimeout(() => again(own).catch(() => {}), 1000);
}

// asks until every image has its place
async function again(own) {
  if (own !== asked || read().view !== "map") return;
  await fetchPoints();
  const state = read();
  if (read().view === "map" && plane) map.draw(await map.open(state), state);
}

const areaOf = ({ area }) =>
  area.split("_").map((pair) => pair.split("~").map(Number)).filter((pair) => pair.length === 2 && pair.every(Number.isFinite));

// the ids in the area or the group that the address names, null if it names none
function chosenIds(state) {
  const area = areaOf(state);
  const group = Number(state.group) - 1;
  if (area.length > 2) return points.ids.filter((_, i) => isInside(area, points.x[i], points.y[i]));
  if (state.group) return points.ids.filter((_, i) => points.group[i] === group);
  return null;
}

// which labels most of some points have
function mostly(some) {
  const counts = new Map();
  for (const i of some) if (points.label[i] >= 0) counts.set(points.label[i], (counts.get(points.label[i]) ?? 0) + 1);
  const names = [...counts].sort((a, b) => b[1] - a[1]).filter(([, n]) => n >= some.length / 5).slice(0, 3);
  return names.length ? `, mostly ${listed(names.map(([label]) => points.names[label]))}` : "";
}

function frequent() {
  const counts = points.names.map(() => 0);
  for (const label of points.label) if (label >= 0) counts[label] += 1;
  return counts.map((n, label) => [label, n]).sort((a, b) => b[1] - a[1]).slice(0, COLOURS.length);
}

function byLabel() {
  const colour = new Map(frequent().map(([label], n) => [label, COLOURS[n]]));
  return points.label.map((label) => colour.get(label) ?? OTHERS);
}

// by the rank of an image: numbers themselves lie too close together
function bySureness() {
  const known = points.uncertainty.map((value, i) => [value, i]).filter(([value]) => value !== null).sort((a, b) => a[0] - b[0]);
  const colours = points.uncertainty.map(() => OTHERS);
  known.forEach(([, i], rank) => {
    const t = (2 * rank) / Math.max(1, known.length - 1);
    const [from, to] = t < 1 ? [SURE[0], SURE[1]] : [SURE[1], SURE[2]];
    const mixed = from.map((v, c) => Math.round(v + (to[c] - v) * (t % 1 || (t >= 1 ? 1 : 0))));
    colours[i] = `rgb(${mixed})`;
  });
  return colours;
}

function swatch(colour, text) {
  const mark = make("i");
  mark.style.background = colour;
  return make("li", {}, mark, text);
}

function drawLegend(state) {
  const labels = frequent().map(([label, n], place) => swatch(COLOURS[place], `${points.names[label]} (${n.toLocaleString("en")})`));
  if (!state.colour && points.names.length > COLOURS.length) labels.push(swatch(OTHERS, "others"));
  const sure = ["sure", "", "unsure"].map((text, n) => swatch(`rgb(${SURE[n]})`, text || "as most"));
  at("legend").replaceChildren(...(state.colour ? sure : labels));
}

function drawGroups(state) {
  const groups = Array.from({ length: points.middle.length }, () => []);
  points.group.forEach((g, i) => groups[g].push(i));
  at("groups").replaceChildren(
    ...groups.map((some, n) => {
      const text = `Group ${n + 1}: ${counted(some.length, "image")}${mostly(some)}`;
      const link = make("a", { href: changed({ group: String(n + 1), area: "", open: "" }), textContent: text });
      if (state.group === String(n + 1)) link.setAttribute("aria-current", "true");
      return make("li", {}, link);
    }),
  );
}

function build() {
  const canvas = make("canvas", { id: "plane", tabIndex: 0 });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Map of the images: arrows move it, plus and minus zoom. The groups beside it list the same images.");
  const button = (text, label, act) => {
    const made = make("button", { textContent: text, title: label, onclick: act });
    made.setAttribute("aria-label", label);
    return made;
  };
  const hand = button("✥", "Move the map instead of drawing on it", () => {
    plane.moving = !plane.moving;
    hand.setAttribute("aria-pressed", plane.moving);
    canvas.classList.toggle("moving", plane.moving);
  });
  hand.setAttribute("aria-pressed", "false");
  const tools = make("div", { id: "map-tools" }, hand, button("+", "Zoom in", () => plane.zoom(1.5)),
    button("−", "Zoom out", () => plane.zoom(1 / 1.5)), button("⤢", "Show all", () => plane.reset()));
  const side = make("aside", { id: "map-side" }, make("ul", { id: "legend", ariaLabel: "Colours" }),
    make("h2", { textContent: "Groups" }), make("ol", { id: "groups" }));
  at("stage").replaceChildren(make("div", { id: "map" }, make("div", { id: "plane-frame" }, canvas, tools), side));
  plane = new Plane(canvas, {
    onOpen: (id) => go(changed({ open: String(id) })),
    onArea: (drawn) => go(changed({ area: shortened(drawn), group: "", open: "" })),
  });
}

// an outline as the address holds it: up to 40 of its points
function shortened(drawn) {
  const every = Math.ceil(drawn.length / 40);
  return drawn.filter((_, n) => n % every === 0).map((pair) => pair.map((v) => Math.round(v)).join("~")).join("_");
}

function reveal() {
  const below = at("results").getBoundingClientRect().top + 240 - innerHeight;
  if (below > 0) scrollBy({ top: below, behavior: "smooth" });
}
