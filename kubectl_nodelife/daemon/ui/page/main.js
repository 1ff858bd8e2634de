// The live page: begins a session, follows the stream, and draws what it tells.

import { lookAround } from "./clusters.js";
import { Panel, objectOf } from "./explain.js";
import { Happened, rangeOf } from "./happened.js";
import { addressOf, legend, next, table, works } from "./lists.js";
import { Model } from "./model.js";
import { situated } from "./now.js";
import { byId, on, write } from "./rows.js";
import { ask, keep, post, session } from "./session.js";
import { forgetPalette } from "./shapes.js";
import { borrowed, connect } from "./stream.js";
import { counted, make, shown } from "./text.js";
import { Wall } from "./wall.js";

const ANNOUNCE_MS = 5000;
const LATE_MS = 2000; // words wait no longer than that for the wall
const model = new Model();
let drawn = -1;
let refusedBecause = "";
let pending = false;
let again = () => {};
let announced = { at: -Infinity, text: "" };

const clock = () => ({ now: model.clock(performance.now()), stale: Boolean(refusedBecause || model.stale(performance.now())) });
const panel = new Panel(() => model.source?.context ?? "", refuse);
const wall = new Wall(byId("wall"), byId("tip"), (name, more) => { if (!more || !panel.choose(name)) location.hash = addressOf("node", name); });
const happened = new Happened(refuse);
wall.onChoose = (text) => write(byId("announce"), text);

function refuse() {
  refusedBecause = "This page has no session any more. Run: kubectl nodelife ui";
  draw();
}

async function begin() {
  const token = location.hash.startsWith("#token=") ? location.hash.slice(7) : "";
  if (token) {
    history.replaceState(null, "", `/${location.search}#/`);
    const begun = await post("/session", { token });
    if (begun.ok) keep((await begun.json()).session);
  }
  if (!session()) keep(await borrowed());
  const known = await ask("/session");
  if (!known.ok) {
    byId("summary").textContent = "";
    refuse();
    return;
  }
  panel.readOnly = (await known.json()).readOnly;
  document.body.classList.toggle("read-only", panel.readOnly);
  if (!panel.readOnly) lookAround();
  again = connect((event, told) => { if (event === "snapshot") begun(); model.take(event, told, performance.now()); wake(); }, lost);
  route();
}

/** A first frame: the session is good, also one that another tab has begun. */
function begun() {
  refusedBecause = "";
  forgetPalette();
}

/** The stream was refused: the session is over, or there are too many readers. */
async function lost() {
  const answer = await ask("/session").catch(() => null);
  if (answer?.status === 401) refuse();
  else setTimeout(again, 5000);
}

function wake() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; draw(); });
}

function draw() {
  const began = performance.now();
  const because = refusedBecause || model.stale(began);
  const banner = byId("banner");
  const told = because && because === model.situation?.sentence; // below it
  write(banner, told ? "" : shown(because));
  banner.hidden = !because || told;
  const { classList } = document.body;
  if (classList.contains("stale") !== classList.toggle("stale", Boolean(because))) {
    listed.at = -Infinity; // the clocks stop, or go on, everywhere at once
    if (model.ready) head();
  }
  if (!model.ready) return;
  const nodes = drawn === model.version ? wall.shownNodes : model.chosen(byId("search").value);
  let more = true; // words come in a frame of their own, so that none takes long
  if (drawn !== model.version) {
    drawn = model.version;
    wall.shownNodes = nodes;
    wall.update(model, nodes, clock);
    if (!performance.getEntriesByName("wall").length) performance.mark("wall");
    head();
    legend(model, nodes);
  } else more = !wall.draw();
  if (more) wake();
  if (!more || began - listed.at > LATE_MS) words(nodes, began);
}

let listed = { at: -Infinity, version: -1 };
let said = -1;

/** Text is made once a second, and only where it is seen; what happens, at once. */
function words(nodes, at) {
  const { now } = clock();
  const wait = at - listed.at < 1000 && (listed.version === model.version || at - listed.at < 250);
  if (!wait || said !== model.version) situated(model, now);
  said = model.version;
  if (wait) return;
  listed = { at, version: model.version };
  wall.tick();
  next(model, nodes, now, Number(byId("zoom").value));
  works(model, now);
  happened.update(model, now);
  table(nodes, now);
  announce(at);
}

function head() {
  const source = model.source ?? {};
  byId("cluster").textContent = shown([source.context, source.server].filter(Boolean).join(", "));
  byId("summary").textContent = summary();
  document.title = shown(`${source.context ?? "kubectl nodelife"}: ${summary()}`);
  const warnings = byId("warnings");
  warnings.hidden = !model.warnings.length;
  warnings.replaceChildren(...model.warnings.map((warning) => make("li", {}, warning)));
}

function summary() {
  const trouble = [...model.nodes.values()].filter((node) => !node.isFine).length;
  const dark = model.zones.filter((zone) => zone.state && zone.state !== "Normal" && zone.state !== "Initial");
  const zones = dark.length ? `; ${dark.map((zone) => `zone ${zone.name} is in ${zone.state}`).join(", ")}` : "";
  const all = counted(model.nodes.size, "node");
  const then = document.body.classList.contains("stale") ? "When last seen: " : "";
  return shown(`${then}${trouble ? `${trouble} of ${all}` : `${all}, none`} in trouble${zones}. Behaviour of ${model.profile}.`);
}

function announce(at) {
  const text = summary();
  if (text === announced.text || at - announced.at < ANNOUNCE_MS) return;
  if (announced.text) byId("announce").textContent = text;
  announced = { at, text };
}

function route() {
  panel.show(objectOf(location.hash));
  happened.choose(rangeOf(location.hash));
  listed.at = -Infinity;
  wake();
}

function redraw() {
  drawn = -1;
  listed.at = -Infinity;
  wake();
}

addEventListener("hashchange", route);
on("search", "input", redraw);
on("search-form", "submit", (event) => event.preventDefault());
on("zoom", "change", redraw);
on("table-box", "toggle", redraw);
for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) matchMedia(query).onchange = () => { forgetPalette(); redraw(); };
on("help-button", "click", () => byId("help").showModal());
on("leave", "click", async () => {
  await post("/logout", {});
  refuse();
});
addEventListener("keydown", (/** @type {any} */ event) => {
  if (event.key === "Escape" && !byId("help").open) { panel.close(); byId("wall").focus(); return; }
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { byId("search").focus(); event.preventDefault(); }
  if (event.key === "t") { byId("next").scrollIntoView(); byId("next").focus(); }
  if (event.key === "?") byId("help").showModal();
});
if (new URLSearchParams(location.search).has("wall")) {
  document.body.classList.add("wall");
  const awake = () => { if (!document.hidden) navigator.wakeLock?.request("screen").catch(() => {}); };
  document.addEventListener("visibilitychange", awake);
  awake();
}
setInterval(() => { if (!document.hidden) wake(); }, matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : 250);
begin().catch(() => { refusedBecause = "The daemon does not answer."; draw(); });
