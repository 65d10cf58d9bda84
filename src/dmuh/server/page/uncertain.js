// The images that the model is least sure of, first.

import { ask, query, say } from "./api.js";
import { Feed, feedOf, show } from "./feed.js";
import { listOf } from "./state.js";

const PART = 60;

export const uncertain = {
  title: () => "Least sure images",
  filters: () => ["label"],
  leave: () => {},
  open: (state) =>
    feedOf(listOf(state), () =>
      new Feed(async (offset) => {
        const { images } = await ask(`/api/images?${query({ order: "uncertainty", n: PART, offset, label: state.label })}`);
        return { images, done: images.length < PART };
      }),
    ),
  draw(feed) {
    show(feed);
    say(feed.images.length ? "Those the model is least sure of come first: strange, cut off, or of two kinds at once." : "There are no images yet.");
  },
};
