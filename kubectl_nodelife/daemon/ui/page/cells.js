// Nodes as equal cells in rows on a canvas. A cell is drawn again only where what it shows is
// another: its key says what that is. Marks with their rings are drawn once each and kept.

import { ring, shape, sharp, turned } from "./shapes.js";
import { counted, left, shown } from "./text.js";

const ROUND_UP = 512; // a canvas grows by so many pixels, since another size empties it
const MOST_KEPT = 5000;

export class Grid {
  nodes = []; drawn = []; columns = 1; wide = 1; high = 1; pixels = ""; height; ratio;

  constructor(canvas, box) {
    this.canvas = canvas;
    this.box = box;
  }

  /** Which nodes it shows, in cells of a size. */
  take(nodes, wide, high, width) {
    const ratio = devicePixelRatio;
    this.columns = Math.max(1, Math.floor((width + 0.5) / wide));
    const height = Math.ceil(nodes.length / this.columns) * high;
    const kept = Math.ceil(height / ROUND_UP) * ROUND_UP;
    const pixels = [Math.round(width * ratio), Math.round(kept * ratio)];
    const measure = `${pixels} ${wide} ${high}`;
    if (measure !== this.pixels) {
      this.pixels = measure;
      [this.canvas.width, this.canvas.height] = pixels;
      this.canvas.style.height = `${kept}px`;
      this.drawn = [];
    }
    if (height !== this.height) this.box.style.height = `${height}px`;
    Object.assign(this, { nodes, wide, high, height, ratio });
  }

  /** Draw what is other than drawn, as long as there is time; whether all of it is drawn. */
  draw(keyOf, paint, until) {
    const { drawn, nodes, wide, high, columns, ratio } = this;
    let context = null;
    const all = Math.max(nodes.length, drawn.length);
    for (let at = 0; at < all; at += 1) {
      const key = at < nodes.length ? keyOf(nodes[at]) : "";
      if (key === (drawn[at] ?? "")) continue;
      if (at % 32 === 0 && performance.now() > until) return false;
      context ??= this.canvas.getContext("2d");
      const [x, y] = [(at % columns) * wide, Math.floor(at / columns) * high];
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      if (drawn[at]) context.clearRect(x, y, wide, high);
      if (key) paint(context, nodes[at], x, y, wide, high, key);
      drawn[at] = key;
    }
    drawn.length = nodes.length;
    return true;
  }

  /** The place of the node at a point of the canvas; -1: there is none. */
  at(x, y) {
    const column = Math.floor(x / this.wide);
    const found = Math.floor(y / this.high) * this.columns + column;
    return column >= 0 && column < this.columns && found < this.nodes.length && y >= 0 ? found : -1;
  }

  forget() {
    this.pixels = "";
  }
}

const LEVELS = 3; // of the time that is left, in the size of a dot

const DUE = { SetNodeCondition: "Unknown", AddTaint: "tainted", RemoveTaint: "taint off" };

/** What is due, in a word or two, and in how much time. */
export function due({ action, waiting, low, high }, now) {
  const word = action.split(" ", 1)[0];
  const what = word === "DeletePod" ? `${counted(Math.max(1, waiting), "pod")} leave` : DUE[word] ?? word;
  const time = left(low, high, now);
  return `${what} ${time === "now" ? time : `in ${time}`}`;
}

/** What cells look like. `colours`: of shapes.js; `scale`: of names beside them. */
export class Painter {
  colours = null; style = "chip"; scale = 1; now = 0; stale = false; chosen = ""; marks = new Map(); fitted = new Map();

  /** Forget all that was made with other colours, or for another screen. */
  forget() {
    this.marks.clear();
    this.fitted.clear();
  }

  keyOf = (node) => {
    let key = this.stale ? `-${node.state}` : `+${node.state}`;
    if (this.style === "dot") key += node.low === null ? "" : ` ${this.level(node)}`;
    else if (node.low !== null) key += ` ${turned(node.low - this.now)} ${turned(node.high - this.now)}`;
    if (this.style === "chip") key += `\n${node.name}\n${this.line(node)}`;
    return node.name === this.chosen ? `*${key}` : key;
  };

  line(node) {
    if (node.low !== null && !this.stale) return due(node, this.now);
    return node.leaving ? `${node.word}, ${node.leaving} Terminating` : node.action && node.low === null ? `${node.word}, held` : node.word;
  }

  paint = (context, node, x, y, wide, high, key) => {
    if (this.style === "chip") this.chip(context, node, x, y, wide, high);
    else if (this.style === "dot") this.dot(context, node, x, y, Math.max(1, wide - 1));
    else context.drawImage(this.mark(node, wide, key), x, y, wide, high);
    if (node.name !== this.chosen) return;
    context.strokeStyle = this.colours.chosen;
    context.lineWidth = 2;
    context.strokeRect(x + 1, y + 1, wide - 2, high - 2);
  };

  /** A square, the larger the sooner something comes; of one that is fine and not healthy, a half. */
  dot(context, node, x, y, side) {
    const wide = node.low === null ? side : Math.max(1, Math.round(side * (1 - 0.15 * this.level(node))));
    context.fillStyle = this.colour(node);
    context.fillRect(x, y, wide, node.isFine && node.word !== "healthy" ? wide / 2 : wide);
  }

  /** In how much time at the latest, in few steps of five minutes. */
  level(node) {
    return Math.floor(Math.sqrt(Math.max(0, Math.min(1, (node.high - this.now) / 300))) * LEVELS);
  }

  colour(node) {
    return this.stale ? this.colours.stale : this.colours.of[node.word] ?? this.colours.dim;
  }

  tone(name) {
    return this.colours[this.stale ? "stale" : name];
  }

  /** A shape and its ring as a picture. */
  mark(node, wide, key) {
    const name = `${wide} ${key}`;
    let made = this.marks.get(name);
    if (!made) {
      if (this.marks.size > MOST_KEPT) this.marks.clear();
      const canvas = new OffscreenCanvas(1, 1);
      const context = sharp(canvas, wide, wide);
      const [middle, clocked] = [wide / 2, node.low !== null];
      shape(context, node.word, middle, middle, wide * (clocked ? 0.22 : 0.3), this.colour(node));
      if (clocked) this.clock(context, node, middle, middle, wide * 0.4);
      made = canvas.transferToImageBitmap();
      this.marks.set(name, made);
    }
    return made;
  }

  chip(context, node, x, y, wide, high) {
    const { scale } = this;
    const [left, text, middle, room] = [x + 15 * scale, x + 32 * scale, y + high / 2, wide - 36 * scale];
    context.font = `${13 * scale}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    shape(context, node.word, left, middle, (node.low !== null ? 6 : 8) * scale, this.colour(node));
    if (node.low !== null) this.clock(context, node, left, middle, 12 * scale);
    context.fillStyle = this.tone("ink");
    context.fillText(this.fit(context, shown(node.name), room), text, middle - 7 * scale);
    context.fillStyle = this.tone("dim");
    context.fillText(this.fit(context, this.line(node), room), text, middle + 8 * scale);
  }

  clock(context, node, x, y, radius) {
    ring(context, x, y, radius, node.low - this.now, node.high - this.now, this.colour(node), this.tone("bar"));
  }

  fit(context, text, width) {
    const name = `${Math.round(width)} ${text}`;
    let found = this.fitted.get(name);
    if (found === undefined) {
      if (this.fitted.size > MOST_KEPT) this.fitted.clear();
      found = cut(context, text, width);
      this.fitted.set(name, found);
    }
    return found;
  }
}

function cut(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let kept = text.slice(0, 40);
  while (kept && context.measureText(`${kept}…`).width > width) kept = kept.slice(0, -1);
  return `${kept}…`;
}
