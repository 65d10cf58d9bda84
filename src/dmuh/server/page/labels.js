// Images whose labels are probably wrong: one key accepts the labels that are suggested, one keeps the given ones.

import { about, ask, at, make, query, say } from "./api.js";
import { Feed, feedOf, forget, more, show } from "./feed.js";
import { toast } from "./removal.js";
import { go, listOf, read } from "./state.js";
import { allTiles, ensureFocusable, focusTile, imageOf, tile, tileOf } from "./tiles.js";
import { isOpen, stepOn } from "./viewer.js";
import { cases, counted } from "./words.js";

const PART = 60;
const DONE = { accept: "takes the suggested label", skip: "keeps its label", undo: "is to be decided again" };

export const labels = {
  title: () => "Labels that are probably wrong",
  filters: () => ["decided"],
  leave: () => at("stage").replaceChildren(),
  open: (state) =>
    feedOf(listOf(state), () => {
      const feed = new Feed(async (offset) => {
        const answer = await ask(`/api/review?${query({ n: PART, offset, decided: Boolean(state.decided) })}`);
        Object.assign(feed.about, answer);
        const images = answer.suspects.map((suspect) => ({ ...suspect.image, suspect }));
        return { images, done: answer.suspects.length < PART };
      });
      return feed;
    }),
  draw(feed, state) {
    show(feed, drawSuspect);
    const { working, open, decided } = feed.about;
    if (working) {
      forget(listOf(state));
      setTimeout(() => listOf(read()) === listOf(state) && go(location.hash, { replace: true }), 1000);
    }
    say(said(working, open, decided, state));
    const save = make("a", { className: "button", href: "/api/review/decisions.csv", download: "decisions.csv", textContent: "Save decisions (CSV)" });
    at("stage").replaceChildren(...(decided ? [make("div", {}, save)] : []));
  },
};

function said(working, open, decided, state) {
  if (!Object.keys(about.labels).length) return "The images have no labels that could be wrong.";
  if (working) return "Looking for labels that do not fit …";
  if (state.decided) return `${counted(decided, "image")} decided.`;
  const before = decided ? ` ${counted(decided, "image")} decided already.` : "";
  if (!open) return `No label is probably wrong.${before}`;
  return `${counted(open, "image")} probably ${open === 1 ? "has" : "have"} a wrong or a missing label. Accept what is suggested, or keep what is there.${before}`;
}

// cat → dog; or, where some labels stay: truck + bus
function changes(given, suggested) {
  const stay = given.filter((label) => suggested.includes(label));
  const go = given.filter((label) => !stay.includes(label)).map((label) => make("del", { textContent: label }));
  const come = suggested.filter((label) => !stay.includes(label)).map((label) => make("ins", { textContent: label }));
  if (!stay.length) return [...spaced(go, ", "), " → ", ...(come.length ? spaced(come, ", ") : ["no label"])];
  return [stay.join(", "), ...go.flatMap((label) => [" ", label]), ...come.flatMap((label) => [" + ", label])];
}

const spaced = (items, between) => items.flatMap((item, n) => (n ? [between, item] : [item]));

function drawSuspect(image) {
  const { suspect } = image;
  const item = tile(image, suspect.in_words);
  item.classList.add("suspect");
  item.querySelector(".fact").title = `Its labels are wrong in ${cases(suspect.probability)}.`;
  const change = make("p", { className: "change" }, ...changes(image.labels, suspect.suggested));
  change.setAttribute("aria-label", `Given: ${image.labels.join(", ") || "no label"}. Suggested: ${suspect.suggested.join(", ") || "no label"}.`);
  const button = (text, key, kind) => {
    const made = make("button", { onclick: () => decide(image.id, kind) }, text, ...(key ? [make("kbd", { textContent: key })] : []));
    made.dataset.kind = kind;
    return made;
  };
  const buttons = suspect.decision
    ? [make("span", { textContent: suspect.decision === "skip" ? "kept" : "accepted" }), button("Undo", "", "undo")]
    : [button("Accept", "a", "accept"), button("Keep", "k", "skip")];
  item.append(change, make("div", { className: "decide" }, ...buttons));
  return item;
}

async function decide(id, kind) {
  const item = tileOf(id);
  const all = allTiles();
  const next = item && (all[all.indexOf(item) + 1] ?? all[all.indexOf(item) - 1]);
  const { suspect } = imageOf(item);
  try {
    await ask(`/api/review/${id}?decision=${kind}`, { method: "POST" });
  } catch (error) {
    say(error.message, true);
    return;
  }
  if (isOpen()) await stepOn();
  forget(listOf({ ...read(), decided: "" }));
  forget(listOf({ ...read(), decided: "1" }));
  item.remove();
  ensureFocusable();
  if (!isOpen()) focusTile(next);
  const opposite = kind === "undo" ? (suspect.decision === "skip" ? "skip" : "accept") : "undo";
  toast(`Image ${id} ${DONE[kind]}.`, async () => {
    await ask(`/api/review/${id}?decision=${opposite}`, { method: "POST" });
    forget(listOf(read()));
    go(location.hash, { replace: true });
  });
  if (!document.querySelector("#results .photo") && !(await more())) go(location.hash, { replace: true });
}

document.addEventListener("keydown", (event) => {
  const kind = { a: "accept", k: "skip" }[event.key];
  if (!kind || read().view !== "labels" || read().decided || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input:not([type=checkbox]), select")) return;
  const item = isOpen() ? tileOf(read().open) : document.activeElement.closest?.(".suspect");
  if (item) decide(imageOf(item).id, kind);
});
