// Where instants lie on a line. Stretches in which nothing lies are folded, so that what does has room.

const LEAST = 1 / 20; // of the line: shorter idle stretches stay as they are
const ROOM = 1 / 60; // beside what happens, unfolded
const FOLDED = 1 / 8; // the width of a fold

/** `spans`: pairs of instants, in seconds. `share` says where an instant lies, from 0 to 1; `folds`
 * where stretches are left out, and how long they are; `at` is the instant of a share. */
export function timeLine(spans, start, end) {
  const whole = end - start;
  const idle = [];
  let from = start;
  const within = spans.map(([low, high]) => [Math.max(low, start), Math.min(high, end)]).filter(([low, high]) => low <= end && high >= start);
  for (const [low, high] of [...within.sort((a, b) => a[0] - b[0]), [end, end]]) {
    const [first, last] = [from === start ? from : from + ROOM * whole, low - ROOM * whole];
    if (last - first > LEAST * whole) idle.push([first, last]);
    from = Math.max(from, high);
  }
  const left = whole - idle.reduce((sum, [first, last]) => sum + last - first, 0);
  const open = 1 - idle.length * FOLDED;
  const points = [[start, 0]];
  let at = start;
  for (const [first, last] of idle) {
    const share = points.at(-1)[1] + ((first - at) / left) * open;
    points.push([first, share], [last, share + FOLDED]);
    at = last;
  }
  points.push([end, 1]);
  return {
    share: (instant) => between(points, instant, 0, 1),
    at: (share) => between(points, share, 1, 0),
    folds: idle.map(([first, last]) => ({ share: between(points, (first + last) / 2, 0, 1), seconds: last - first })),
  };
}

/** On a line through points: what stands in column `to` where column `of` has that value. */
function between(points, value, of, to) {
  const place = points.findIndex((point) => point[of] >= value);
  if (place < 0) return points.at(-1)[to];
  if (place === 0) return points[0][to];
  const [one, other] = [points[place - 1], points[place]];
  const wide = other[of] - one[of];
  return wide ? one[to] + ((value - one[of]) / wide) * (other[to] - one[to]) : other[to];
}
