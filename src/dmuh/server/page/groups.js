// Groups of points that lie together on a map: k-means, always with the same result for the same points.

const MOST = 12;
const ROUNDS = 12;

// Returns the number of the group of each point, the largest group first, and for each group the point in its middle.
export function groupsOf(x, y) {
  const n = x.length;
  const k = Math.max(1, Math.min(MOST, Math.round(Math.sqrt(n / 4))));
  let centres = farApart(x, y, k);
  const group = new Int16Array(n);
  for (let round = 0; round < ROUNDS; round += 1) {
    const sums = centres.map(() => [0, 0, 0]);
    for (let i = 0; i < n; i += 1) {
      let best = Infinity;
      for (let c = 0; c < centres.length; c += 1) {
        const away = (x[i] - centres[c][0]) ** 2 + (y[i] - centres[c][1]) ** 2;
        if (away < best) [best, group[i]] = [away, c];
      }
      const sum = sums[group[i]];
      sum[0] += x[i];
      sum[1] += y[i];
      sum[2] += 1;
    }
    centres = sums.map(([sx, sy, m], c) => (m ? [sx / m, sy / m] : centres[c]));
  }
  const sizes = centres.map(() => 0);
  for (const g of group) sizes[g] += 1;
  const order = sizes.map((_, c) => c).filter((c) => sizes[c]).sort((a, b) => sizes[b] - sizes[a]);
  const rank = new Map(order.map((c, place) => [c, place]));
  const middle = order.map(() => [Infinity, -1]);
  for (let i = 0; i < n; i += 1) {
    const [cx, cy] = centres[group[i]];
    const away = (x[i] - cx) ** 2 + (y[i] - cy) ** 2;
    const place = rank.get(group[i]);
    if (away < middle[place][0]) middle[place] = [away, i];
  }
  return { group: group.map((g) => rank.get(g)), middle: middle.map(([, i]) => i) };
}

// begins with the point nearest to the middle, then always the one farthest from all before it
function farApart(x, y, k) {
  if (!x.length) return [];
  const away = Array.from(x, (_, i) => (x[i] - 500) ** 2 + (y[i] - 500) ** 2);
  let next = away.indexOf(Math.min(...away.slice(0, 50_000)));
  const nearest = new Float64Array(x.length).fill(Infinity);
  const centres = [];
  while (centres.length < k) {
    const [cx, cy] = [x[next], y[next]];
    centres.push([cx, cy]);
    let farthest = -1;
    for (let i = 0; i < x.length; i += 1) {
      nearest[i] = Math.min(nearest[i], (x[i] - cx) ** 2 + (y[i] - cy) ** 2);
      if (nearest[i] > farthest) [farthest, next] = [nearest[i], i];
    }
    if (farthest === 0) break;
  }
  return centres;
}

export function isInside(polygon, px, py) {
  let inside = false;
  for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i, i += 1) {
    const [xi, yi] = polygon[i];
    const [xj, yj] = polygon[j];
    if (yi > py !== yj > py && px < ((xj - xi) * (py - yi)) / (yj - yi) + xi) inside = !inside;
  }
  return inside;
}
