// The sentences about images of the collection that fit the query image, where there are.

import { about, ask, at, make, query, Refused, send } from "./api.js";
import { changed, listOf, read } from "./state.js";
import { nearness } from "./words.js";

const MOST = 3;
const LONGEST = 500; // characters of a search by words

// asked for once per list, after its images; it is no harm to them if that fails
export async function drawCaptions(feed, upload, state) {
  at("query-texts").hidden = true;
  if (about.no_captions || state.code || state.text) return;
  feed.about.captions ??= asked(upload, state).catch((error) => {
    if (!(error instanceof Refused)) throw error;
    return [];
  });
  const texts = await feed.about.captions;
  if (listOf(read()) !== listOf(state)) return; // left meanwhile
  at("texts").replaceChildren(...texts.map(item));
  at("query-texts").hidden = !texts.length;
}

async function asked(upload, { from, ranking }) {
  const how = query({ k: MOST, ranking, id: upload ? "" : from });
  const { texts } = await (upload ? send(`/api/captions?${how}`, upload.file) : ask(`/api/captions?${how}`));
  return texts.filter((text) => text.likely !== "unlikely");
}

// a sentence leads to the images that it describes
function item(found) {
  const href = changed({ view: "search", from: "", upload: "", code: "", by: "", open: "", text: found.text.slice(0, LONGEST) });
  const text = about.no_texts ? make("span", { textContent: found.text }) : make("a", { href, textContent: found.text });
  return make("li", {}, text, make("span", { className: `fact ${(found.likely ?? "").replace(" ", "-")}`, textContent: nearness(found) }));
}
