// What the daemon has told: a snapshot, and the deltas after it. Nothing is decided here.

export class Model {
  source; zones; warnings; works; states; fine; profile; epoch; names;
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
      Object.assign(this, { source: {}, zones: [], warnings: [], works: [], states: told.states ?? [], fine: new Set(told.fine), profile: told.profile, ready: true });
      this.epoch = told.epochS ?? 0; // the stream's second 0, by the API server's clock
    }
    for (const field of ["source", "zones", "warnings", "works"]) {
      if (told[field] !== undefined) this[field] = told[field] ?? [];
    }
    for (const row of told.nodes ?? []) this.nodes.set(row[0], this.node(row));
    for (const name of told.gone ?? []) this.nodes.delete(name);
    for (const change of told.changes ?? []) this.changes.set(change.id, change);
    const surplus = this.changes.size - 200;
    if (surplus > 0) {
      for (const id of [...this.changes.keys()].sort((a, b) => a - b).slice(0, surplus)) this.changes.delete(id);
    }
  }

  node(row) {
    const [name, zone, state, pods = null, waiting, action, low = null, high = null] = row;
    const word = this.states[state] ?? "unknown";
    return { name, state, pods, waiting, action, low, high, word, isFine: this.fine.has(word), zoneName: this.zones[zone]?.name ?? "" };
  }

  /** The stream's clock at an instant of the page's; it stands still where nothing was heard. */
  clock(at) {
    return this.now + Math.max(0, Math.min(at, this.heardAt + 5000) - this.heardAt) / 1000;
  }

  /** Why what is shown may not be so any more; "": it is. */
  stale(at) {
    const silent = (at - this.heardAt) / 1000;
    if (this.ready && silent > 5) return `No news from the daemon for ${Math.round(silent)} s: all is shown as it was then.`;
    if (this.waiting) return this.waiting;
    if (this.source?.standsStill) return `The daemon does not see the cluster: ${this.source.standsStill}. All is shown as last seen.`;
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
    const soon = (node) => node.low ?? Number.MAX_VALUE;
    return buckets.flatMap((nodes) => (nodes.some((node) => node.low !== null) ? nodes.sort((a, b) => soon(a) - soon(b)) : nodes));
  }

  /** All nodes in the order of their names, which is sorted anew only when a node comes or goes. */
  byName() {
    if (this.names?.length !== this.nodes.size || !this.names.every((name) => this.nodes.has(name))) {
      this.names = [...this.nodes.keys()].sort();
    }
    return this.names.map((name) => this.nodes.get(name));
  }
}
