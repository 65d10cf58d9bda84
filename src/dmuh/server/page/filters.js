// The form above a list: each view names the fields it has, and the address holds what was chosen.

import { about, at, make } from "./api.js";
import { changed, go } from "./state.js";

const select = (name, options) => {
  const field = make("select", { id: name.replace("_", "-"), name });
  field.append(...options.map(([value, text]) => new Option(text, value)));
  return field;
};

const FIELDS = {
  label: () => {
    const labels = Object.entries(about.labels);
    if (!labels.length) return null;
    const options = labels.map(([label, n]) => [label, `${label} (${n.toLocaleString("en")})`]);
    return ["Label", select("label", [["", "all"], ...options])];
  },
  by: () => (about.by_class ? ["Search by", select("by", [["", "look"], ["class", "class"]])] : null),
  order: () => ["Order", select("order", [["", "at random"], ["id", "by folder and name"]])],
  at_least: () => {
    if (!about.match_known && !about.by_class) return null;
    return ["Shares a label", select("at_least", [["", "any"], ["0.4", "maybe"], ["0.8", "very likely"]])];
  },
  radius: () => {
    const field = make("input", { id: "radius", name: "radius", type: "number", min: 0, max: 1024, step: "any" });
    field.placeholder = "any";
    return ["Bits apart, at most", field];
  },
  ranking: () => about.no_uploads ? null : ["Ranking", select("ranking", [["", "sure bits count more"], ["hamming", "every bit counts the same"]])],
  decided: () => ["Show", select("decided", [["", "to be decided"], ["1", "decided"]])],
  colour: () => ["Colour", select("colour", [["", "by label"], ["sure", "by how sure they are"]])],
};

export function drawFilters(names, state) {
  const drawn = names.map((name) => [name, FIELDS[name]()]).filter(([, field]) => field);
  at("filters").replaceChildren(
    ...drawn.map(([name, [text, field]]) => {
      field.value = state[name];
      if (field.value !== state[name]) field.value = ""; // a label that is gone
      return make("label", {}, make("span", { textContent: text }), field);
    }),
  );
  at("filters").hidden = !drawn.length;
}

at("filters").onchange = (event) => go(changed({ [event.target.name]: event.target.value, open: "" }));
at("filters").onsubmit = (event) => event.preventDefault();
