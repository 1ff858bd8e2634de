// The wall: a block a zone with its numbers as text, and its nodes on canvases.

import { Grid, Painter, due } from "./cells.js";
import { Rows, write } from "./rows.js";
import { palette } from "./shapes.js";
import { counted, duration, make, press, shown, when } from "./text.js";

const CHIPS = 150; // up to so many nodes each has its name beside it
const DOTS = 1000; // from so many on nodes are dots, and a zone has one height
const CHIP = { width: 184, height: 38 };
const SIDE = { trouble: 28, many: 12, cell: 21 };
const DOT = { least: 2, most: 12, room: 170 }; // pixels: of a side, and of a zone's height
const SOONEST = 10;
const MANY = 150; // so many in trouble in a zone are shown by small marks
const WALL_SCALE = 1.5; // of names on a wall screen
const DRAWN_MS = 4; // what is left is drawn in the next frame

export class Wall {
  blocks = new Map(); painter = new Painter(); shownNodes = []; root; tip; onOpen; onChoose; model; clock; laidOut; ratio;

  constructor(root, tip, onOpen) {
    Object.assign(this, { root, tip, onOpen });
    new ResizeObserver(() => { if (root.clientWidth !== this.laidOut) this.layout(); }).observe(root);
    root.addEventListener("click", (event) => { const node = this.under(event); if (node) this.onOpen(node.name, event.shiftKey); });
    root.addEventListener("pointermove", (event) => this.hover(event));
    root.addEventListener("pointerleave", () => { tip.hidden = true; });
    root.addEventListener("keydown", (event) => this.key(event));
  }

  /** Take what the model has now. */
  update(model, nodes, clock) {
    this.model = model;
    this.clock = clock;
    const colours = palette(model.states);
    const style = nodes.length <= CHIPS ? "chip" : nodes.length <= DOTS ? "cell" : "dot";
    if (colours !== this.painter.colours || style !== this.painter.style) this.forget();
    const scale = document.body.classList.contains("wall") ? WALL_SCALE : 1;
    Object.assign(this.painter, { colours, style, scale });
    this.root.classList.toggle("large", style === "dot");
    this.root.closest("main").classList.toggle("beside", style === "dot"); // what comes next
    const byZone = new Map(model.zones.map((zone) => [zone.name, []]));
    for (const node of nodes) {
      if (!byZone.has(node.zoneName)) byZone.set(node.zoneName, []);
      byZone.get(node.zoneName).push(node);
    }
    if (nodes.length < model.nodes.size) for (const [name, members] of byZone) if (!members.length) byZone.delete(name); // a filter
    for (const [name, block] of this.blocks) {
      if (!byZone.has(name)) { block.section.remove(); this.blocks.delete(name); }
    }
    for (const [name, members] of byZone) {
      const block = this.blocks.get(name) ?? this.block(name);
      block.nodes = members;
      this.describe(block, model.zones.find((zone) => zone.name === name));
    }
    return this.layout();
  }

  forget() {
    this.painter.forget();
    for (const block of this.blocks.values()) for (const grid of block.grids) grid.forget();
  }

  block(name) {
    const title = make("span", {}, name || "no zone");
    const tag = make("span", { class: "tag" });
    const numbers = make("p");
    const bar = make("div", { class: "bar", "aria-hidden": "true" }, make("span"), make("span", { class: "late" }), make("i"));
    const brake = make("p", { class: "dim" });
    const grids = [0, 1].map(() => {
      const canvas = make("canvas", { "aria-hidden": "true" });
      return new Grid(canvas, make("div", { class: "cells" }, canvas));
    });
    const soonest = make("ol", { class: "soonest", "aria-label": shown(`What comes soonest in ${name || "no zone"}`) });
    const cells = make("div", { class: "density" }, make("div", {}, ...grids.map((grid) => grid.box)), soonest);
    const section = make("div", { class: "zone" }, make("h3", {}, title, tag), numbers, bar, brake, cells);
    const made = { name, tag, numbers, bar, brake, coming: false, section, grids, soonest: new Rows(soonest), nodes: [] };
    this.blocks.set(name, made);
    this.root.append(section);
    return made;
  }

  describe(block, zone) {
    if (!zone) { block.tag.hidden = true; return; }
    block.section.dataset.state = zone.state;
    write(block.tag, shown(zone.state || "Initial"));
    const { nodes, notReady, silent, queued, rate, threshold } = zone;
    const queue = queued ? `; ${counted(queued, "node")} in the queue${rate ? `: ${duration(queued / rate)}` : ", which stands"}` : "";
    const quiet = silent ? `, ${silent} silent` : "";
    write(block.numbers, `${nodes - notReady - silent} of ${counted(nodes, "node")} ready${quiet}, ${notReady} not ready; ${rate ? `taints one each ${duration(1 / rate)}` : "taints none"}${queue}`);
    const share = (count) => `${(100 * count) / Math.max(1, nodes)}%`;
    const [lost, late, mark] = block.bar.children;
    lost.style.width = share(notReady);
    late.style.width = share(silent);
    mark.style.left = `${threshold * 100}%`;
    this.foretell(block, zone);
  }

  /** What becomes of the zone, counted down; else what losing more of it does. */
  foretell(block, { coming, silent, nodes, brake }) {
    const { now } = this.clock();
    block.coming = coming.length > 0;
    write(block.brake, shown(block.coming ? `${silent ? `${silent} of ${nodes} silent: ` : ""}${coming.map((step) => `${step.says} ${when(step.lowS, step.highS, now)}`).join(", ")}${silent ? " if none reports" : ""}` : brake));
  }

  /** Count down what becomes of zones, and what comes soonest in each of many nodes. */
  tick() {
    const { now } = this.clock();
    for (const block of this.blocks.values()) {
      const zone = block.coming && this.model.zones.find(({ name }) => name === block.name);
      if (zone) this.foretell(block, zone);
      const nodes = this.painter.style === "dot" ? soonest(block.nodes) : [];
      const rows = block.soonest.show(nodes, (node) => node.name, (node) => make("li", {}, press(node.name, () => this.onOpen(node.name)), make("span", { class: "when" })));
      for (const node of nodes) write(rows.get(node.name).lastChild, due(node, now));
    }
  }

  /** Give each node its cell, and draw; whether all of it is drawn. */
  layout() {
    if (!this.model) return true;
    if (this.ratio !== devicePixelRatio) this.forget();
    this.ratio = devicePixelRatio;
    this.laidOut = this.root.clientWidth;
    const blocks = [...this.blocks.values()];
    const widths = blocks.map((block) => block.grids[0].box.parentElement.clientWidth || 300);
    blocks.forEach((block, at) => this.place(block, widths[at]));
    return this.draw();
  }

  place({ grids: [first, second], nodes }, width) {
    const { style } = this.painter;
    if (style === "chip") {
      const { scale } = this.painter;
      first.take(nodes, width / Math.max(1, Math.floor(width / (CHIP.width * scale))), CHIP.height * scale, width);
      second.take([], 1, 1, width);
    } else if (style === "dot") {
      const side = sideOf(nodes.length, width, this.painter.scale);
      first.take(nodes, side, side, width);
      second.take([], 1, 1, width);
    } else {
      const trouble = nodes.filter((node) => !node.isFine);
      const side = trouble.length > MANY ? SIDE.many : SIDE.trouble;
      first.take(trouble, side, side, width);
      second.take(nodes.filter((node) => node.isFine), SIDE.cell, SIDE.cell, width);
    }
  }

  /** Draw what is other than drawn; whether all of it is. */
  draw() {
    const until = performance.now() + DRAWN_MS;
    const { painter } = this;
    Object.assign(painter, this.clock());
    let done = true;
    for (const { grids } of this.blocks.values()) {
      for (const grid of grids) done = grid.draw(painter.keyOf, painter.paint, until) && done;
    }
    return done;
  }

  // Pointer and keys

  under(event) {
    for (const { grids } of this.blocks.values()) {
      const grid = grids.find(({ canvas }) => canvas === event.target);
      if (!grid) continue;
      const box = grid.canvas.getBoundingClientRect();
      return grid.nodes[grid.at(event.clientX - box.left, event.clientY - box.top)] ?? null;
    }
    return null;
  }

  hover(event) {
    const node = this.under(event);
    this.tip.hidden = !node;
    if (!node) return;
    this.tip.textContent = this.says(node);
    this.tip.style.left = `${Math.max(0, Math.min(event.pageX + 12, document.documentElement.clientWidth - 250))}px`;
    this.tip.style.top = `${event.pageY + 14}px`;
  }

  /** A node in a line, for the tip and for those who hear it. */
  says(node) {
    const pods = node.pods === null ? "pods unknown" : counted(node.pods, "pod");
    const next = node.action ? `; ${shown(node.action)} ${when(node.low, node.high, this.clock().now)}` : "";
    const leaving = node.leaving ? `, ${node.leaving} of them Terminating` : "";
    return `${shown(node.name)}: ${node.word}, ${pods}${leaving}${next}`;
  }

  key(event) {
    if (event.target !== this.root) return; // a button in it
    const { chosen } = this.painter;
    if (event.key === "Enter" && chosen) { this.onOpen(chosen, event.shiftKey); event.preventDefault(); }
    const grids = [...this.blocks.values()].flatMap((block) => block.grids).filter((grid) => grid.nodes.length);
    const found = stepped(grids, chosen, event.key);
    if (!found) return;
    event.preventDefault();
    this.choose(found);
  }

  choose(node) {
    this.painter.chosen = node.name;
    this.onChoose?.(this.says(node));
    this.draw();
  }
}

/** The largest side of so many dots for which a zone has room. */
function sideOf(many, width, scale) {
  for (let side = DOT.most; side > DOT.least; side -= 1) {
    if (Math.ceil(many / Math.max(1, Math.floor(width / side))) * side <= DOT.room * scale) return side;
  }
  return DOT.least;
}

/** Those to which something comes soonest. Nodes of a state are in that order already. */
function soonest(nodes) {
  const taken = new Map();
  const first = nodes.filter((node) => {
    if (node.low === null) return false;
    const many = taken.get(node.state) ?? 0;
    taken.set(node.state, many + 1);
    return many < SOONEST;
  });
  return first.sort((a, b) => a.low - b.low).slice(0, SOONEST);
}

/** The node to which a key leads from the chosen one; undefined: the key is none of these. */
function stepped(grids, chosen, key) {
  if (!/^(Arrow.*|Home|End)$/.test(key) || !grids.length) return undefined;
  let row = grids.findIndex((grid) => grid.nodes.some((node) => node.name === chosen));
  if (row < 0 || key === "Home") return grids[0].nodes[0];
  if (key === "End") return grids.at(-1).nodes.at(-1);
  const from = grids[row];
  const at = from.nodes.findIndex((node) => node.name === chosen);
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: from.columns, ArrowUp: -from.columns }[key];
  if (from.nodes[at + step]) return from.nodes[at + step];
  row += Math.sign(step);
  const to = grids[row];
  if (!to) return from.nodes[at];
  if (/Left|Right/.test(key)) return to.nodes.at(step < 0 ? -1 : 0);
  const column = Math.min(to.columns - 1, Math.floor(((at % from.columns) * from.wide) / to.wide));
  const start = step > 0 ? 0 : Math.floor((to.nodes.length - 1) / to.columns) * to.columns;
  return to.nodes[Math.min(start + column, to.nodes.length - 1)];
}
