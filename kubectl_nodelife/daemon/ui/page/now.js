// The first thing that is seen: what happens since when, what Kubernetes does next and in how much
// time, whom it hurts, and what one types. The daemon says it; here it is laid out and counted down.

import { byId, on, Rows, stretch, widthOf, write } from "./rows.js";
import { played } from "./session.js";
import { between, clockTime, duration, led, left, make, shown } from "./text.js";

const thenRows = new Rows(byId("now-then"));
const optionRows = new Rows(byId("now-options"));

const level = (situation) => situation.level ?? "peace";

/** `now`: the stream's clock. */
export function situated(model, now) {
  const { situation } = model;
  const box = byId("now");
  box.hidden = !situation;
  if (!situation) return;
  box.dataset.level = level(situation);
  write(byId("now-says"), shown(situation.sentence));
  const { sinceS, coming, options, uncoming = "" } = situation;
  write(byId("now-since"), sinceS === null ? "" : `since ${clockTime(model.epoch + sinceS)}${level(situation) === "blind" ? "" : `, ${duration(now - sinceS)} ago`}`);
  const [first, ...others] = coming;
  byId("now-next").hidden = !first && !uncoming;
  write(byId("now-count"), first ? left(first.lowS, first.highS, now) : "");
  write(byId("now-what"), shown(first ? first.says : uncoming));
  write(byId("now-at"), first ? at(model, first) : "");
  const rows = thenRows.show(others, (each) => each.says, (each) => make("li", {}, make("b", { class: "when" }), " ", each.says, " ", make("span", { class: "dim when" })));
  for (const each of others) {
    const row = rows.get(each.says);
    write(row.firstChild, left(each.lowS, each.highS, now));
    write(row.lastChild, at(model, each));
  }
  picture(model, now);
  const hurts = { ours: "Still moves", blind: "When last seen it hurt" }[level(situation)] ?? "Hurts";
  write(byId("now-hurts"), situation.hurts ? shown(`${hurts} ${situation.hurts}.`) : "");
  write(byId("now-advice"), shown(situation.advice));
  const context = led(model.source?.context ?? "").map((word) => ` ${word}`).join("");
  optionRows.show(options, (each) => `${each.command}${context}`, (each) => option(`${each.command}${context}`, each));
}

const laneRows = new Rows(byId("now-lanes"));
const harmedRows = new Rows(byId("now-harmed"));
const AXIS = { name: "", state: "", coming: [] };
const PAST = 1 / 6; // of the line
const STEPS = [10, 15, 30, 60, 120, 300, 600, 900, 1800];

/** Past to the left of now, what comes to the right: nodes of one fate are one lane. */
function picture({ situation: { lanes, harmed }, epoch }, now) {
  const ahead = Math.min(3600, Math.max(60, ...[...lanes, ...harmed].flatMap(({ coming }) => coming.map((each) => each.highS - now))) * 1.05);
  const [start, end] = [now - (ahead * PAST) / (1 - PAST), now + ahead];
  const share = (instant) => Math.max(0, Math.min(1, (instant - start) / (end - start)));
  const keyOf = (lane) => `${lane.name}\n${lane.state}\n${lane.coming.map((each) => each.says)}\n${lane.stays}`;
  const made = laneRows.show(lanes.length ? [...lanes, AXIS] : [], keyOf, laneRow);
  const rows = new Map([...made, ...harmedRows.show(harmed, keyOf, laneRow)]);
  for (const lane of [...lanes, ...harmed]) {
    const [, track, words] = rows.get(keyOf(lane)).children;
    const [past, ...bars] = track.children;
    const lasts = harmed.includes(lane); // fewer pods are ready from then on, or already
    past.hidden = lasts && lane.coming.length > 0;
    past.classList.toggle("leave", lasts);
    if (lasts) stretch(past, 0, 1);
    else stretch(past, share(lane.sinceS ?? now), share(now));
    lane.coming.forEach((each, at) => stretch(bars[at], share(each.lowS), lasts ? 1 : share(each.highS)));
    bars.at(-1).style.left = `${share(now) * 100}%`;
    write(words, shown([lane.stays, ...lane.coming.map((each) => `${each.says} ${between(epoch, each.lowS, each.highS)}`)].filter(Boolean).join(" → ")));
  }
  if (lanes.length) ticks(made.get(keyOf(AXIS)).children[1], epoch, start, end, share);
}

function laneRow(lane) {
  if (lane === AXIS) return make("li", { class: "lane scale", "aria-hidden": "true" }, make("span"), make("span", { class: "ticks" }), make("span"));
  const bars = lane.coming.map((each) => make("span", { class: `step ${STEP[each.says] ?? "leave"}` }));
  return make("li", { class: "lane", role: "row", tabindex: "-1" }, make("span", { role: "rowheader" }, make("b", {}, lane.name), ` ${lane.state}`),
    make("span", { class: "track", "aria-hidden": "true" }, make("span", { class: "past" }), ...bars, make("i")), make("span", { class: "when", role: "gridcell" }));
}

/** Arrow keys, Home and End go from row to row. */
function walk(event) {
  const rows = [...event.currentTarget.querySelectorAll("[role=row]")];
  const by = { ArrowDown: 1, ArrowUp: -1, Home: -rows.length, End: rows.length }[event.key];
  if (by === undefined) return;
  event.preventDefault();
  rows[Math.max(0, Math.min(rows.length - 1, rows.indexOf(document.activeElement) + by))]?.focus();
}
for (const list of ["now-lanes", "now-harmed"]) on(list, "keydown", walk);

const STEP = { Unknown: "unknown", tainted: "taint", "taint off": "back", ends: "ours" };

/** Round times of day, as many as there is room for. */
function ticks(track, epoch, start, end, share) {
  const most = Math.max(2, widthOf(track) / 80);
  const step = STEPS.find((seconds) => (end - start) / seconds <= most) ?? 3600;
  const marks = [];
  const last = end - ((end - start) * 64) / widthOf(track); // its text has room
  for (let at = Math.ceil((epoch + start) / step) * step; at < epoch + last; at += step) marks.push(at);
  while (track.children.length > marks.length) track.lastChild.remove();
  while (track.children.length < marks.length) track.append(make("span"));
  marks.forEach((at, place) => {
    const mark = track.children[place];
    mark.style.left = `${share(at - epoch) * 100}%`;
    write(mark, step % 60 ? clockTime(at) : clockTime(at).slice(0, 5));
  });
}

/** Between which times of day it comes. */
function at(model, { lowS, highS }) {
  const [low, high] = [clockTime(model.epoch + lowS), clockTime(model.epoch + highS)];
  return low === high ? `at ${low}` : `between ${low} and ${high}`;
}

/** A button that copies a command. */
export function copier(command) {
  const copied = () => { navigator.clipboard?.writeText(command); write(byId("announce"), "Copied"); };
  return make("button", { type: "button", "aria-label": shown(`Copy: ${command}`), onclick: copied }, "Copy");
}

function option(command, { effect, acts }) {
  const comes = make("p", { class: "dim", role: "status" });
  const ways = acts ? [" ", make("button", { type: "button", class: "plays", "aria-label": shown(`What would it do: ${command}`), onclick: () => foretell(acts, comes) }, "What would it do?"), comes] : [];
  return make("li", {}, make("code", {}, command), " ", copier(command), ` ${effect}`, ...ways);
}

/** What comes of acts, which the daemon plays; nothing is changed anywhere. */
async function foretell(acts, comes) {
  const say = (text) => write(comes, shown(text));
  say("Playing …");
  try {
    for await (const told of played(acts)) {
      if (told.over) throw new Error("the session is over");
      if (told.waits) say(told.waits);
      else say(told.error ? `${told.error.what} ${told.error.remedy ?? ""}` : `At ${clockTime(Date.now() / 1000)}: ${told.verdict.text}`);
    }
  } catch {
    say("The daemon does not answer.");
  }
}
