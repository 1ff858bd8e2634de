// The explanation of one object, beside the wall: the daemon's own answer, in its own words.

import { byId, on, stretch } from "./rows.js";
import { ask, played } from "./session.js";
import { counted, duration, fullName, led, make, quoted, shown } from "./text.js";

const KINDS = { node: "Node", pod: "Pod", daemonset: "DaemonSet", zone: "Zone" };
const EVERY_MS = 5000;
const MOST_BANDS = 50;
const SILENT = "The daemon does not answer.";

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
  const namespace = object.namespace ? ["-n", quoted(object.namespace)] : [];
  return ["kubectl nodelife explain", object.word, quoted(object.name), ...namespace, ...led(context)].join(" ");
}

export class Panel {
  context; refused; object = null; text = ""; readOnly = false; names = []; playing = new AbortController();

  constructor(context, refused) {
    Object.assign(this, { context, refused });
    on("panel-close", "click", () => this.close());
    on("copy", "click", () => navigator.clipboard?.writeText(byId("panel-command").textContent));
    on("what-if-form", "submit", (event) => { event.preventDefault(); this.play(); });
    on("what-if-act", "change", () => this.fill());
    setInterval(() => { if (this.object && !document.hidden) this.ask(); }, EVERY_MS);
  }

  show(object) {
    const opened = object && !this.object;
    this.object = object;
    this.text = "";
    byId("panel").hidden = !object;
    byId("columns").classList.toggle("open", Boolean(object));
    byId("what-if-form").hidden = this.readOnly || !["node", "zone"].includes(object?.word);
    this.names = [object?.name];
    this.fill();
    if (!object) return;
    byId("panel-title").textContent = shown(`${object.kind} ${fullName(object)}`);
    byId("panel-command").textContent = shown(commandFor(object, this.context()));
    byId("panel-body").replaceChildren(said("Asking …"));
    if (opened) byId("panel-title").focus({ preventScroll: true });
    this.ask();
  }

  close() {
    if (this.object) location.hash = "#/";
  }

  /** Ask about this node too, or no longer; false: no node is shown. */
  choose(name) {
    if (this.object?.word !== "node" || this.readOnly) return false;
    const others = this.names.filter((each) => each !== name);
    this.names = others.length < this.names.length && others.length ? others : [...others, name];
    this.fill();
    return true;
  }

  /** The chosen act in words. */
  fill() {
    this.giveUp();
    const what = () => `${this.object?.word} ${this.names.map(quoted).join(" ")}`;
    byId("what-if-acts").value = byId("what-if-act").value.replace("{}", what);
  }

  /** What is shown, or being played, was asked about another choice. */
  giveUp() {
    this.playing.abort();
    byId("what-if-answer").replaceChildren();
  }

  /** What the acts would do, which the daemon plays; nothing is changed anywhere. */
  async play() {
    this.giveUp();
    const { signal } = (this.playing = new AbortController());
    const acts = byId("what-if-acts").value;
    const show = (...content) => { if (!signal.aborted) byId("what-if-answer").replaceChildren(...content); };
    show(said("Playing …"));
    try {
      for await (const told of played(acts, signal)) {
        if (told.over) this.refused();
        else if (told.waits) show(said(told.waits), ...(told.progress ? [make("p", {}, told.progress.first)] : []));
        else show(...(told.error ? wrong(told.error) : changed(told, [acts, ...led(this.context())].join(" "))));
      }
    } catch {
      show(said(SILENT));
    }
  }

  async ask() {
    const asked = this.object;
    const query = new URLSearchParams({ kind: asked.kind, name: asked.name });
    if (asked.namespace) query.set("namespace", asked.namespace);
    try {
      const answer = await ask(`/api/v1/explain?${query}`);
      if (answer.status === 401) { this.refused(); return; }
      const text = await answer.text();
      if (asked !== this.object || text === this.text) return;
      this.text = text;
      const told = JSON.parse(text);
      byId("panel-body").replaceChildren(...(told.error ? wrong(told.error) : (told.answers ?? []).flatMap(answered)));
    } catch {
      if (asked === this.object && !this.text) byId("panel-body").replaceChildren(said(SILENT));
    }
  }
}

const said = (text) => make("p", { class: "dim" }, text);

function wrong(error) {
  return [make("p", {}, error.on ? `${error.on}: ${error.what}` : error.what), ...(error.remedy ? [said(error.remedy)] : [])];
}

/** A WhatIf document in short: how many pods of each workload and Service are ready, from when until when fewer, the worst first. */
function changed(told, acts) {
  const end = told.horizon?.endedSeconds || told.horizon?.untilSeconds || 1;
  const hit = (told.workloads ?? []).filter((each) => each.outage && each.outage !== "none");
  const served = (told.services ?? []).filter((each) => each.lowest < each.endpointsBefore);
  const harmed = [
    ...hit.map((each) => ({ name: fullName(each), before: each.readyBefore, lowest: each.lowestReady, from: each.firstSeconds, to: each.backSeconds, says: each.outage })),
    ...served.map((each) => ({ name: `Service ${fullName(each)}`, before: each.endpointsBefore, lowest: each.lowest, from: each.fromSeconds, to: each.toSeconds, says: each.fromSeconds === null ? "fewer endpoints" : "no endpoint" })),
  ].sort((one, other) => one.lowest / one.before - other.lowest / other.before);
  return [make("p", {}, told.verdict?.text ?? ""), ...(told.warnings ?? []).map(said),
    make("ul", { class: "bands lanes" }, ...(harmed.length ? [make("li", { class: "dim" }, `Ready pods; the bands are of ${duration(end)} from now.`)] : []), ...harmed.slice(0, MOST_BANDS).map((each) => band(each, end))),
    said(`${counted(hit.length, "workload")} hit; all of it: kubectl nodelife what-if ${acts}`)];
}

function band({ name, before, lowest, from, to, says }, end) {
  const bar = make("span");
  if (from !== null) stretch(bar, Math.min(1, from / end), Math.min(1, (to ?? end) / end));
  const track = make("span", { class: lowest ? "track" : "track full", "aria-hidden": "true" }, ...(from === null ? [] : [bar]));
  const back = from === null ? "" : to === null ? ", not back" : to < 1 ? ", back at once" : `, back after ${duration(to)}`;
  return make("li", { class: "lane" }, make("span", {}, make("b", {}, name), ` ${before} → ${lowest}`), track, make("span", { class: "when" }, `${says}${back}`));
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
