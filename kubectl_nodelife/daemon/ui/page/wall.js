// The wall: a block a zone with its numbers as text, and its nodes on a canvas.

import { palette, ring, shape } from "./shapes.js";
import { counted, make, shown, when } from "./text.js";

const CHIPS = 150; // up to so many nodes each has its name beside it
const DOTS = 1000; // from so many on healthy nodes are dots
const CHIP = { width: 148, height: 34 };
const TROUBLE = 24;

export class Wall {
  constructor(root, tip, onOpen) {
    Object.assign(this, { root, tip, onOpen, blocks: new Map(), places: [], chosen: "", colours: null });
    new ResizeObserver(() => { if (root.clientWidth !== this.laidOut) this.layout(); }).observe(root);
    root.addEventListener("click", (event) => this.at(event, (node) => this.onOpen(node.name)));
    root.addEventListener("pointermove", (event) => this.hover(event));
    root.addEventListener("pointerleave", () => { tip.hidden = true; });
    root.addEventListener("keydown", (event) => this.key(event));
  }

  /** Take what the model has now. */
  update(model, nodes, clock) {
    this.model = model;
    this.clock = clock;
    this.colours = palette(model.states);
    this.style = nodes.length <= CHIPS ? "chip" : nodes.length <= DOTS ? "cell" : "dot";
    this.root.classList.toggle("large", this.style === "dot");
    const byZone = new Map(model.zones.map((zone) => [zone.name, []]));
    for (const node of nodes) {
      if (!byZone.has(node.zoneName)) byZone.set(node.zoneName, []);
      byZone.get(node.zoneName).push(node);
    }
    for (const [name, block] of this.blocks) {
      if (!byZone.has(name)) { block.section.remove(); this.blocks.delete(name); }
    }
    for (const [name, members] of byZone) {
      const block = this.blocks.get(name) ?? this.block(name);
      block.nodes = members;
      this.describe(block, model.zones.find((zone) => zone.name === name));
    }
    this.layout();
  }

  block(name) {
    const title = make("span", {}, name || "no zone");
    const tag = make("span", { class: "tag" });
    const numbers = make("p");
    const brake = make("p", { class: "dim" });
    const canvas = make("canvas", { "aria-hidden": "true" });
    const section = make("div", { class: "zone" }, make("h3", {}, title, tag), numbers, brake, canvas);
    const made = { name, tag, numbers, brake, canvas, section, nodes: [], places: [] };
    this.blocks.set(name, made);
    this.root.append(section);
    return made;
  }

  describe(block, zone) {
    if (!zone) { block.tag.hidden = true; return; }
    const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };
    block.section.dataset.state = zone.state;
    write(block.tag, shown(zone.state || "Initial"));
    const queue = zone.queued ? `, ${counted(zone.queued, "node")} in the queue` : "";
    write(block.numbers, `${zone.notReady} of ${counted(zone.nodes, "node")} not ready (threshold ${Math.round(zone.threshold * 100)} %), ${zone.rate}/s${queue}`);
    write(block.brake, shown(zone.brake));
  }

  /** Give each node its place, and draw. */
  layout() {
    if (!this.model) return;
    const ratio = devicePixelRatio || 1;
    this.laidOut = this.root.clientWidth;
    this.places = [];
    const widths = new Map([...this.blocks.values()].map((block) => [block, block.canvas.clientWidth || 300]));
    for (const [block, width] of widths) {
      block.width = width;
      const height = this.place(block, width);
      block.canvas.style.height = `${height}px`;
      const pixels = [Math.round(width * ratio), Math.round(height * ratio)];
      if (block.canvas.width !== pixels[0]) block.canvas.width = pixels[0];
      if (block.canvas.height !== pixels[1]) block.canvas.height = pixels[1];
      block.height = height;
      this.places.push(...block.places);
    }
    this.draw(true);
  }

  place(block, width) {
    block.places = [];
    let [x, y, line] = [0, 0, 0];
    const put = (node, wide, high) => {
      if (x && x + wide > width + 0.5) { x = 0; y += line; line = 0; }
      block.places.push({ node, block, x, y, wide, high });
      x += wide;
      line = Math.max(line, high);
    };
    const chip = width / Math.max(1, Math.floor(width / CHIP.width));
    const [fine, gap] = this.style === "dot" ? [6, 1] : [18, 3];
    for (const node of block.nodes) {
      if (this.style === "chip") put(node, chip, CHIP.height);
      else if (!node.isFine) put(node, TROUBLE + 4, TROUBLE + 4);
    }
    if (this.style !== "chip") {
      if (x) { x = 0; y += line; line = 0; }
      for (const node of block.nodes) if (node.isFine) put(node, fine + gap, fine + gap);
    }
    return y + line + 2;
  }

  /** Draw the blocks that have clocks, or all. */
  draw(all) {
    for (const block of this.blocks.values()) {
      if (all || block.nodes.some((node) => node.low !== null)) this.paint(block);
    }
  }

  paint(block) {
    const context = block.canvas.getContext("2d");
    const ratio = devicePixelRatio || 1;
    const { now, stale } = this.clock();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, block.width, block.height);
    context.font = "12.5px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const place of block.places) {
      if (this.style === "chip") this.chip(context, place, now, stale);
      else if (place.node.isFine && this.style === "dot") this.dot(context, place, stale);
      else this.cell(context, place, now, stale);
      if (place.node.name === this.chosen) {
        context.strokeStyle = this.colours.chosen;
        context.lineWidth = 2;
        context.strokeRect(place.x + 1, place.y + 1, place.wide - 2, place.high - 2);
      }
    }
  }

  colour(node, stale) {
    return stale ? this.colours.stale : this.colours.of[node.word] ?? this.colours.dim;
  }

  dot(context, { node, x, y }, stale) {
    context.fillStyle = this.colour(node, stale);
    context.fillRect(x, y, 6, node.word === "healthy" ? 6 : 3);
  }

  cell(context, { node, x, y, wide }, now, stale) {
    const [middle, colour] = [wide / 2, this.colour(node, stale)];
    const clocked = node.low !== null;
    shape(context, node.word, x + middle, y + middle, clocked ? wide * 0.22 : wide * 0.3, colour);
    if (clocked) this.clockOf(context, node, x + middle, y + middle, wide * 0.4, now, colour, stale);
  }

  chip(context, { node, x, y, wide, high }, now, stale) {
    const colour = this.colour(node, stale);
    const middle = y + high / 2;
    shape(context, node.word, x + 15, middle, node.low !== null ? 6 : 8, colour);
    if (node.low !== null) this.clockOf(context, node, x + 15, middle, 12, now, colour, stale);
    const next = node.low !== null ? when(node.low, node.high, now) : node.word;
    context.fillStyle = stale ? this.colours.stale : this.colours.ink;
    context.fillText(this.fit(context, shown(node.name), wide - 36), x + 32, middle - 7);
    context.fillStyle = stale ? this.colours.stale : this.colours.dim;
    context.fillText(this.fit(context, next, wide - 36), x + 32, middle + 8);
  }

  clockOf(context, node, x, y, radius, now, colour, stale) {
    const pale = stale ? this.colours.stale : this.colours.bar;
    ring(context, x, y, radius, node.low - now, node.high - now, colour, pale);
  }

  fit(context, text, width) {
    if (context.measureText(text).width <= width) return text;
    let kept = text.slice(0, 40);
    while (kept && context.measureText(`${kept}…`).width > width) kept = kept.slice(0, -1);
    return `${kept}…`;
  }

  // Pointer and keys

  at(event, found) {
    const block = [...this.blocks.values()].find(({ canvas }) => canvas === event.target);
    if (!block) return null;
    const box = block.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const place = block.places.find((p) => x >= p.x && x < p.x + p.wide && y >= p.y && y < p.y + p.high);
    if (place) found(place.node);
    return place;
  }

  hover(event) {
    const place = this.at(event, (node) => {
      this.tip.textContent = this.says(node);
      this.tip.style.left = `${Math.max(0, Math.min(event.pageX + 12, document.documentElement.clientWidth - 250))}px`;
      this.tip.style.top = `${event.pageY + 14}px`;
    });
    this.tip.hidden = !place;
  }

  /** A node in a line, for the tip and for those who hear it. */
  says(node) {
    const pods = node.pods === null ? "pods unknown" : counted(node.pods, "pod");
    const next = node.action ? `; ${shown(node.action)} ${when(node.low, node.high, this.clock().now)}` : "";
    return `${shown(node.name)}: ${node.word}, ${pods}${next}`;
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: "down", ArrowUp: "up", Home: "first", End: "last" }[event.key];
    if (event.key === "Enter" && this.chosen) { this.onOpen(this.chosen); event.preventDefault(); }
    if (step === undefined || !this.places.length) return;
    event.preventDefault();
    const at = this.places.findIndex((place) => place.node.name === this.chosen);
    this.choose(this.places[at < 0 ? 0 : this.moved(at, step)].node);
  }

  moved(at, step) {
    const last = this.places.length - 1;
    if (step === "first" || step === "last") return step === "first" ? 0 : last;
    if (typeof step === "number") return Math.max(0, Math.min(last, at + step));
    const from = this.places[at];
    const down = step === "down";
    for (let to = at + (down ? 1 : -1); to >= 0 && to <= last; to += down ? 1 : -1) {
      const place = this.places[to];
      const other = place.block !== from.block || (down ? place.y > from.y : place.y < from.y);
      if (other && place.x <= from.x && place.x + place.wide > from.x) return to;
    }
    return at;
  }

  choose(node) {
    this.chosen = node.name;
    this.onChoose?.(this.says(node));
    this.draw(true);
  }
}
