// The explanation of one object, beside the wall: the daemon's own answer, in its own words.

import { byId, on, post, stretch } from "./rows.js";
import { counted, duration, make, shown } from "./text.js";

const KINDS = { node: "Node", pod: "Pod", daemonset: "DaemonSet", zone: "Zone" };
const EVERY_MS = 5000;
const MOST_BANDS = 50;

/** The object of an address such as #/pod/default/web-1; null: it is none. */
export function objectOf(hash) {
  const [start, kind, ...names] = hash.split("/");
  if (start !== "#" || !KINDS[kind] || !names.length) return null;
  try {
    const words = names.map(decodeURIComponent);
    const namespace = words.length > 1 && kind !== "zone" ? words[0] : "";
    return { kind: KINDS[kind], word: kind, namespace, name: kind === "zone" ? words.join("/") : words.at(-1) };
  } catch {
    return null;
  }
}

/** The same in a terminal. */
export function commandFor(object, context) {
  const quoted = (word) => (/^[\w./:@-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
  const words = ["kubectl nodelife explain", object.word, quoted(object.name)];
  if (object.namespace) words.push("-n", quoted(object.namespace));
  if (context) words.push("--context", quoted(context));
  return words.join(" ");
}

export class Panel {
  object = null; text = ""; readOnly = false;

  constructor(context, refused) {
    this.context = context;
    this.refused = refused;
    on("panel-close", "click", () => this.close());
    on("copy", "click", () => navigator.clipboard?.writeText(byId("panel-command").textContent));
    on("what-if", "click", () => this.play());
    setInterval(() => { if (this.object && !document.hidden) this.ask(); }, EVERY_MS);
  }

  show(object) {
    const opened = object && !this.object;
    this.object = object;
    this.text = "";
    byId("panel").hidden = !object;
    byId("columns").classList.toggle("open", Boolean(object));
    if (!object) return;
    byId("panel-title").textContent = shown(`${object.kind} ${object.namespace ? `${object.namespace}/` : ""}${object.name}`);
    byId("panel-command").textContent = shown(commandFor(object, this.context()));
    byId("panel-body").replaceChildren(make("p", { class: "dim" }, "Asking …"));
    byId("what-if-answer").replaceChildren();
    byId("what-if-tools").hidden = this.readOnly || !["node", "zone"].includes(object.word);
    if (opened) byId("panel-title").focus({ preventScroll: true });
    this.ask();
  }

  close() {
    if (this.object) location.hash = "#/";
  }

  /** What its loss would do, which the daemon plays in a child; nothing is changed anywhere. */
  async play() {
    const asked = this.object;
    const show = (...content) => { if (asked === this.object) byId("what-if-answer").replaceChildren(...content); };
    show(make("p", { class: "dim" }, "Playing …"));
    try {
      const answer = await post("/api/v1/what-if", { kind: asked.word, name: asked.name });
      if (answer.status === 401) { this.refused(); return; }
      if (answer.status === 429) { show(make("p", {}, "Another question is being played; try again in a moment.")); return; }
      const told = await answer.json();
      show(...(told.error ? wrong(told.error) : lost(told)));
    } catch {
      show(make("p", {}, "The daemon does not answer."));
    }
  }

  async ask() {
    const asked = this.object;
    const query = new URLSearchParams({ kind: asked.kind, name: asked.name });
    if (asked.namespace) query.set("namespace", asked.namespace);
    try {
      const answer = await fetch(`/api/v1/explain?${query}`);
      if (answer.status === 401) { this.refused(); return; }
      const text = await answer.text();
      if (asked !== this.object || text === this.text) return;
      this.text = text;
      const told = JSON.parse(text);
      byId("panel-body").replaceChildren(...(told.error ? wrong(told.error) : (told.answers ?? []).flatMap(answered)));
    } catch {
      if (asked === this.object && !this.text) byId("panel-body").replaceChildren(make("p", {}, "The daemon does not answer."));
    }
  }
}

function wrong(error) {
  return [make("p", {}, error.on ? `${error.on}: ${error.what}` : error.what), ...(error.remedy ? [make("p", { class: "dim" }, error.remedy)] : [])];
}

/** A WhatIf document in short: how long each workload and Service is hit, as bands on one line of time. */
function lost(told) {
  const verdict = told.verdict ?? {};
  const figures = Object.entries(verdict).filter(([, both]) => both?.future !== both?.baseline)
    .map(([key, both]) => make("li", {}, `${key.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)}: ${both.future} instead of ${both.baseline}`));
  const end = told.horizon?.endedSeconds || told.horizon?.untilSeconds || 1;
  const hit = (told.workloads ?? []).filter((each) => each.outage && each.outage !== "none");
  const back = (at) => (at === null ? "not back" : `back after ${duration(at)}`);
  const bands = [
    ...hit.slice(0, MOST_BANDS).map((each) => band(each, each.firstSeconds, each.backSeconds, end, each.outage === "full",
      `${each.outage}: ${each.lowestReady} of ${each.wanted} Ready at the lowest, ${back(each.backSeconds)}`)),
    ...(told.services ?? []).filter((each) => each.fromSeconds !== null).slice(0, MOST_BANDS)
      .map((each) => band(each, each.fromSeconds, each.toSeconds, end, true, `Service without endpoints, ${back(each.toSeconds)}`)),
  ];
  return [make("h3", {}, "What if it were lost?"), make("p", {}, verdict.text ?? ""), make("ul", {}, ...figures),
    make("ul", { class: "bands" }, ...(bands.length ? [make("li", { class: "dim" }, `The bands are of ${duration(end)} from now.`)] : []), ...bands),
    make("p", { class: "dim" }, `${counted(hit.length, "workload")} hit; all of it: kubectl nodelife what-if lose ${told.acts?.[0]?.act?.split(" ")[1] ?? ""} ${told.acts?.[0]?.targets?.[0] ?? ""}`)];
}

function band(each, from, to, end, full, says) {
  const bar = make("span");
  stretch(bar, Math.min(1, (from ?? 0) / end), Math.min(1, (to ?? end) / end));
  return make("li", {}, make("b", {}, `${each.namespace}/${each.name}`), ` ${says}`, make("span", { class: full ? "track full" : "track", "aria-hidden": "true" }, bar));
}

function answered(part) {
  const made = [make("h3", {}, part.question), ...(part.sentences ?? []).map((sentence) => make("p", {}, sentence))];
  if (part.terms?.length) {
    made.push(make("ul", {}, ...part.terms.map((term) => make("li", {}, `${term.what}: ${span(term)}`, make("span", { class: "dim" }, ` ${term.origin}`)))));
  }
  return made;
}

function span({ lowSeconds: low, highSeconds: high }) {
  if (low === null && high === null) return "never, as things are";
  if (high === null) return `${low}s or longer`;
  return low === high ? `${low}s` : `${low}s to ${high}s`;
}
