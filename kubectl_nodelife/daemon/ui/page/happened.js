// What happened: a lane for each actor, and the changes as rows. A stretch of time can be chosen.

import { byId, on, Rows, widthOf, write } from "./rows.js";
import { ask } from "./session.js";
import { palette, sharp } from "./shapes.js";
import { counted, duration, fullName, make, press, shown } from "./text.js";
import { timeLine } from "./time_line.js";
import { addressOf, link } from "./lists.js";

const MOST_ROWS = 100;
const HOUR = 3600;
const LANE = 20;
const LINKED = new Set(["Node", "Pod", "DaemonSet", "Zone"]);
const DONE = new Set(["applied", "confirmed", "decided", ""]);

/** Of an address such as #/happened/2026-01-01T10:00:00Z/2026-01-01T10:05:00Z; null: it is none. */
export function rangeOf(hash) {
  const [start, word, from, to] = hash.split("/");
  if (start !== "#" || word !== "happened") return null;
  const [low, high] = [Date.parse(from) / 1000, Date.parse(to) / 1000];
  return low < high ? { low, high } : null;
}

const clock = (at) => new Date(at * 1000).toLocaleTimeString();
const addressOfRange = (low, high) => `#/happened/${[low, high].map((at) => new Date(at * 1000).toISOString().replace(/\.\d+Z/, "Z")).join("/")}`;

export class Happened {
  rows = new Rows(byId("happened-list")); lanes = byId("lanes");
  range = null; asked = null; found = null; dragged = null; line = null; model; now; left;

  constructor(refused) {
    this.refused = refused;
    on("lanes", "pointerdown", (event) => this.begin(event));
    on("lanes", "pointermove", (event) => { if (this.dragged) { this.dragged.to = this.place(event); this.draw(); } });
    on("lanes", "pointerup", () => this.end());
    on("lanes", "pointercancel", () => { this.dragged = null; this.draw(); });
    on("range-form", "submit", (event) => { event.preventDefault(); this.typed(); });
    on("range-all", "click", () => { location.hash = "#/"; });
  }

  /** Show that stretch of time, null: the last hour. Instants are seconds since the epoch. */
  choose(range) {
    if (range?.low === this.range?.low && range?.high === this.range?.high) return;
    Object.assign(this, { range, found: null, asked: null });
    if (range) byId("happened").scrollIntoView({ block: "nearest" });
  }

  update(model, now) {
    Object.assign(this, { model, now });
    if (this.range && !this.asked) this.ask();
    const changes = this.chosen();
    const newest = changes.slice(0, MOST_ROWS);
    const led = new Map();
    for (const { cause } of changes) if (cause !== null) led.set(cause, (led.get(cause) ?? 0) + 1);
    const known = new Set(changes.map(({ id }) => id));
    const keyOf = (change) => `${change.id} ${change.outcome} ${change.reason} ${led.get(change.id) ?? 0} ${known.has(change.cause)}`;
    const rows = this.rows.show(newest, keyOf, (change) => this.row(change, led.get(change.id) ?? 0, known.has(change.cause)));
    for (const change of newest) write(rows.get(keyOf(change)).firstChild, `${duration(now - change.atS)} ago`);
    byId("happened-none").hidden = newest.length > 0;
    write(byId("range-note"), this.note(changes.length));
    byId("range-all").hidden = !this.range;
    this.draw();
  }

  /** The newest first. */
  chosen() {
    const all = this.found ?? [...this.model.changes.values()];
    const { range, model } = this;
    const within = range ? all.filter(({ atS }) => atS + model.epoch >= range.low && atS + model.epoch <= range.high + 1) : all;
    return within.sort((a, b) => b.id - a.id);
  }

  note(count) {
    const listed = count > MOST_ROWS ? `, the newest ${MOST_ROWS} are listed` : "";
    return this.range ? `${clock(this.range.low)} to ${clock(this.range.high)}: ${this.found ? `${counted(count, "change")}${listed}.` : "asking …"}` : "";
  }

  /** The Replay has what others did, too, and more than the stream. */
  async ask() {
    const { range, model } = this;
    let found = [...model.changes.values()];
    this.asked = range;
    const seconds = Math.ceil(this.now + model.epoch - range.low) + 1;
    const until = Math.max(0, Math.floor(this.now + model.epoch - range.high) - 1);
    if (seconds <= 0) return;
    try {
      const answer = await ask(`/api/v1/replay?since=${seconds}000000000&until=${until}000000000`);
      if (answer.status === 401) { this.refused(); return; }
      found = (await answer.json()).items.map((item) => ({
        id: item.id, atS: Date.parse(item.time) / 1000 - model.epoch, controller: item.actor.kind === "kubelet" ? "kubelets" : item.actor.name, action: item.action,
        kind: item.object.kind, namespace: item.object.namespace ?? "", name: item.object.name, taint: /Taint/i.test(item.action) ? item.detail ?? "" : "", outcome: item.outcome ?? "", reason: item.reason, cause: item.cause,
      }));
    } catch { /* the stream's changes are what there is */ }
    if (this.range !== range) return;
    this.found = found;
    this.update(model, this.now);
  }

  row(change, led, hasCause) {
    const row = make("li", { "data-change": String(change.id) },
      make("span", { class: "when" }),
      make("span", {}, make("span", { class: "tag" }, change.outcome)),
      make("span", { class: "what" }, `${change.action} `, objectLink(change), change.taint ? `: ${shown(change.taint)}` : "", ` by ${shown(change.controller)}`));
    const why = make("span", { class: "why" }, change.reason);
    if (hasCause) why.append(" ", press("its cause", () => this.mark((other) => other.id === change.cause)));
    if (led) why.append(" ", press(`what it led to (${led})`, () => this.mark((other) => other.cause === change.id)));
    row.append(why);
    return row;
  }

  mark(chosen) {
    const wanted = new Set(this.chosen().filter(chosen).map(({ id }) => String(id)));
    let first = null;
    for (const row of this.rows.list.children) {
      row.classList.toggle("marked", wanted.has(row.dataset.change));
      if (wanted.has(row.dataset.change)) first ??= row;
    }
    first?.scrollIntoView({ block: "nearest" });
  }

  // Lanes

  draw() {
    const { lanes, model, now } = this;
    if (!model?.ready) return;
    const changes = [...(this.found ?? model.changes.values())];
    const actors = [...new Set(changes.map(({ controller }) => controller))].sort();
    const [width, height] = [widthOf(lanes), actors.length * LANE + LANE];
    const end = this.range ? Math.max(this.range.high - model.epoch, this.range.low - model.epoch + 1) : now;
    const start = this.range ? this.range.low - model.epoch : now - HOUR;
    this.line = timeLine(changes.map(({ atS }) => [atS, atS]), start, end);
    this.left = Math.min(140, width / 3);
    lanes.hidden = !actors.length;
    lanes.style.height = `${height}px`;
    const context = sharp(lanes, width, height);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.paint(context, palette(model.states), { changes, actors, width, height, start, end });
  }

  paint(context, colours, { changes, actors, width, height, start, end }) {
    const x = (share) => this.left + share * (width - this.left - 4);
    context.fillStyle = colours.dim;
    actors.forEach((actor, lane) => context.fillText(shown(actor), 0, lane * LANE + LANE / 2, this.left - 8));
    const axis = actors.length * LANE + LANE / 2;
    context.fillText(clock(start + this.model.epoch), this.left, axis);
    context.textAlign = "right";
    context.fillText(clock(end + this.model.epoch), width - 4, axis);
    context.textAlign = "center";
    context.strokeStyle = colours.line;
    for (const fold of this.line.folds) {
      for (const beside of [-3, 3]) context.strokeRect(x(fold.share) + beside, 0, 0, height - LANE);
      if (x(fold.share) - this.left > 90 && width - x(fold.share) > 90) context.fillText(duration(fold.seconds), x(fold.share), axis);
    }
    context.textAlign = "left";
    context.strokeStyle = context.fillStyle = colours.ink;
    for (const change of changes) {
      if (change.atS < start || change.atS > end) continue;
      const [at, top] = [x(this.line.share(change.atS)), actors.indexOf(change.controller) * LANE];
      if (change.outcome === "failed") context.fillText("×", at - 4, top + LANE / 2);
      else if (DONE.has(change.outcome)) context.fillRect(at - 1, top + 4, 2, LANE - 8);
      else context.strokeRect(at - 1.5, top + 6, 3, LANE - 12);
    }
    if (!this.dragged) return;
    const [one, other] = [this.dragged.from, this.dragged.to].sort((a, b) => a - b);
    context.globalAlpha = 0.3;
    context.fillStyle = colours.chosen;
    context.fillRect(x(one), 0, x(other) - x(one), height - LANE);
    context.globalAlpha = 1;
  }

  place(event) {
    const box = this.lanes.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - box.left - this.left) / (box.width - this.left - 4)));
  }

  begin(event) {
    this.lanes.setPointerCapture(event.pointerId);
    const at = this.place(event);
    this.dragged = { from: at, to: at, line: this.line, epoch: this.model.epoch };
  }

  end() {
    const { dragged } = this;
    this.dragged = null;
    if (!dragged || Math.abs(dragged.from - dragged.to) < 0.005) { this.draw(); return; }
    const [low, high] = [dragged.from, dragged.to].map((share) => dragged.line.at(share) + dragged.epoch).sort((a, b) => a - b);
    location.hash = addressOfRange(Math.floor(low), Math.ceil(high));
  }

  typed() {
    const day = (text) => { const at = Date.parse(`${new Date().toDateString()} ${text}`); return (at > Date.now() ? at - 86_400_000 : at) / 1000; };
    const [from, to] = [byId("range-from").value, byId("range-to").value];
    if (from && to && day(from) < day(to)) location.hash = addressOfRange(day(from), day(to));
    else write(byId("range-note"), "The first time must lie before the second.");
  }
}

function objectLink(change) {
  const text = `${change.kind} ${fullName(change)}`;
  return LINKED.has(change.kind) ? link(text, addressOf(change.kind, change.namespace, change.name)) : text;
}
