// Ten states, ten shapes: what a state is can be seen without its colour.

const TURN = Math.PI * 2;

function polygon(context, x, y, r, corners, turned = 0) {
  for (let corner = 0; corner < corners; corner += 1) {
    const angle = turned + (corner / corners) * TURN;
    context[corner ? "lineTo" : "moveTo"](x + r * Math.cos(angle), y + r * Math.sin(angle));
  }
  context.closePath();
}

/** Each path through points, in radii from the middle. */
function lines(c, x, y, r, ...paths) {
  for (const path of paths) path.forEach(([right, down], at) => c[at ? "lineTo" : "moveTo"](x + r * right, y + r * down));
}

const FILLED = {
  "not-ready": (c, x, y, r) => polygon(c, x, y + r * 0.15, r, 3, -TURN / 4),
  overdue: (c, x, y, r) => polygon(c, x, y, r, 8, TURN / 16),
  pressure: (c, x, y, r) => polygon(c, x, y, r, 4),
  "no-network": (c, x, y, r) => polygon(c, x, y, r * 0.7, 4),
  tainted: (c, x, y, r) => c.rect(x - r * 0.8, y, r * 1.6, r * 0.8),
};

const DRAWN = {
  healthy: (c, x, y, r) => c.arc(x, y, r * 0.65, 0, TURN),
  unreachable: (...at) => lines(...at, [[-0.7, -0.7], [0.7, 0.7]], [[0.7, -0.7], [-0.7, 0.7]]),
  silent: (c, x, y, r) => { c.arc(x, y, r * 0.7, TURN * 0.1, TURN * 0.9); },
  evicting: (...at) => lines(...at, [[0, -0.8], [0, 0.7]], [[-0.6, 0.1], [0, 0.75], [0.6, 0.1]]),
  "never-posted": (c, x, y, r) => { c.arc(x, y, r * 0.7, 0, TURN); },
  tainted: (c, x, y, r) => { c.rect(x - r * 0.8, y - r * 0.8, r * 1.6, r * 1.6); },
  cordoned: (c, x, y, r) => {
    c.rect(x - r * 0.7, y - r * 0.7, r * 1.4, r * 1.4);
    lines(c, x, y, r, [[-0.7, 0.7], [0.7, -0.7]]);
  },
};

/** Draws the shape of a state around x, y. */
export function shape(context, word, x, y, radius, colour) {
  context.fillStyle = context.strokeStyle = colour;
  context.lineWidth = Math.max(1.2, radius / 3.2);
  const filled = FILLED[word];
  const drawn = DRAWN[word] ?? (filled ? null : DRAWN["never-posted"]);
  if (filled) { context.beginPath(); filled(context, x, y, radius); context.fill(); }
  if (drawn) { context.beginPath(); drawn(context, x, y, radius); context.stroke(); }
}

/** The context of a canvas of that size, as sharp as the screen. */
export function sharp(canvas, wide, high) {
  const ratio = devicePixelRatio;
  [canvas.width, canvas.height] = [Math.round(wide * ratio), Math.round(high * ratio)];
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

const STEPS = 60;

/** By how many steps a ring that runs down in so many seconds is turned. */
export function turned(seconds) {
  return Math.round(Math.sqrt(Math.max(0, Math.min(1, seconds / 300))) * STEPS);
}

/** A ring around it: how long it is until what comes next; a range is a thick arc at its end. */
export function ring(context, x, y, radius, low, high, colour, pale) {
  const share = (seconds) => turned(seconds) / STEPS;
  const top = -TURN / 4;
  context.lineWidth = 2;
  context.strokeStyle = colour;
  context.beginPath();
  context.arc(x, y, radius, top, top + TURN * share(low));
  context.stroke();
  if (high - low < 1) return;
  context.lineWidth = 4;
  context.strokeStyle = pale;
  context.beginPath();
  context.arc(x, y, radius, top + TURN * share(low), top + TURN * share(high));
  context.stroke();
}

let colours = null;

/** The page's colours as they are now: light, dark, or forced by the system. */
export function palette(states) {
  if (colours) return colours;
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  const of = Object.fromEntries(states.map((state) => [state, read(state) || read("dim")]));
  colours = { of, ...Object.fromEntries(["ink", "dim", "line", "paper", "card", "chosen", "bar", "stale"].map((name) => [name, read(name)])) };
  return colours;
}

/** They are others now, or those of other states. */
export function forgetPalette() {
  colours = null;
}
