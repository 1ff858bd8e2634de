// What the daemon has told: a snapshot, and the deltas after it. Nothing is decided here.

import { led } from "./text.js";

const byNumber = new Intl.Collator("en", { numeric: true }).compare; // a2 before a10

export class Model {
  source; zones; warnings; works; situation; states; fine; profile; epoch; names;
  ready = false; version = 0; nodes = new Map(); changes = new Map(); waiting = "";
  heardAt = -Infinity; // by this page's own clock
  now = 0; // the stream's clock, then

  take(event, told, at) {
    this.heardAt = at;
    if (typeof told.now === "number") this.now = told.now;
    if (event === "waiting") {
      this.waiting = String(told.what ?? "");
      return;
    }
    if (event === "tick") return;
    this.waiting = "";
    this.version += 1;
    if (event === "snapshot") {
      this.nodes.clear();
      this.changes.clear();
      Object.assign(this, { source: {}, zones: [], warnings: [], works: [], situation: null, states: told.states ?? [], fine: new Set(told.fine), profile: told.profile, ready: true });
      this.epoch = told.epochS ?? 0; // the stream's second 0, by the API server's clock
    }
    for (const field of ["source", "zones", "warnings", "works"]) {
      if (told[field] !== undefined) this[field] = told[field] ?? [];
    }
    if (told.situation !== undefined) this.situation = told.situation;
    for (const row of told.nodes ?? []) this.nodes.set(row[0], this.node(row));
    for (const name of told.gone ?? []) this.nodes.delete(name);
    for (const change of told.changes ?? []) this.changes.set(change.id, change);
    const surplus = this.changes.size - 200;
    if (surplus > 0) {
      for (const id of [...this.changes.keys()].sort((a, b) => a - b).slice(0, surplus)) this.changes.delete(id);
    }
  }

  node(row) {
    const [name, zone, state, pods = null, waiting, action, low = null, high = null, leaving = 0] = row;
    const word = this.states[state] ?? "unknown";
    return { name, state, pods, waiting, action, low, high, leaving, word, isFine: this.fine.has(word), zoneName: this.zones[zone]?.name ?? "" };
  }

  /** The stream's clock at an instant of the page's; it stands still where nothing was heard. */
  clock(at) {
    if (this.isBlind) return this.situation.sinceS ?? this.now;
    return this.now + Math.max(0, Math.min(at, this.heardAt + 5000) - this.heardAt) / 1000;
  }

  /** The daemon does not see the cluster. */
  get isBlind() {
    return this.situation?.level === "blind";
  }

  /** Why what is shown may not be so any more; "": it is. */
  stale(at) {
    const silent = (at - this.heardAt) / 1000;
    if (this.ready && silent > 5) return `No news from the daemon for ${Math.round(silent)} s: all is shown as it was then. If none comes: ${["kubectl nodelife ui", ...led(this.source?.context ?? "")].join(" ")}`;
    if (this.waiting) return this.waiting;
    if (this.isBlind) return this.situation.sentence;
    return "";
  }

  /** The nodes that the words choose, the worst first, of the same trouble what comes soonest. */
  chosen(words) {
    const wanted = words.trim().split(/\s+/).filter(Boolean).map((word) => word.split("="));
    const holds = (node, [key, value]) => {
      if (key === "zone" && value) return [node.zoneName, ...node.zoneName.split("/")].includes(value);
      if (key === "state" && value) return node.word === value;
      return node.name.includes(key);
    };
    const found = this.byName().filter((node) => wanted.every((word) => holds(node, word)));
    const buckets = Array.from({ length: this.states.length }, () => []);
    for (const node of found) buckets[node.state]?.push(node);
    const soon = (node) => (node.leaving && node.low === null ? -1 : node.low ?? Number.MAX_VALUE);
    return buckets.flatMap((nodes) => (nodes.some((node) => node.low !== null || node.leaving) ? nodes.sort((a, b) => soon(a) - soon(b)) : nodes));
  }

  /** All nodes in the order of their names, which is sorted anew only when a node comes or goes. */
  byName() {
    if (this.names?.length !== this.nodes.size || !this.names.every((name) => this.nodes.has(name))) {
      this.names = [...this.nodes.keys()].sort(byNumber);
    }
    return this.names.map((name) => this.nodes.get(name));
  }
}
