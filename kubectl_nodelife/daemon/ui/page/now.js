// The first thing that is seen: what happens since when, what Kubernetes does next and in how much
// time, whom it hurts, and what one types. The daemon says it; here it is laid out and counted down.

import { byId, Rows, write } from "./rows.js";
import { clockTime, duration, led, left, make, shown } from "./text.js";

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
  const { sinceS, coming, options } = situation;
  write(byId("now-since"), sinceS === null ? "" : `since ${clockTime(model.epoch + sinceS)}${level(situation) === "blind" ? "" : `, ${duration(now - sinceS)} ago`}`);
  const [first, ...others] = coming;
  byId("now-next").hidden = !first;
  if (first) {
    write(byId("now-count"), left(first.lowS, first.highS, now));
    write(byId("now-what"), shown(first.says));
    write(byId("now-at"), at(model, first));
  }
  const rows = thenRows.show(others, (each) => each.says, (each) => make("li", {}, make("b", { class: "when" }), " ", each.says, " ", make("span", { class: "dim when" })));
  for (const each of others) {
    const row = rows.get(each.says);
    write(row.firstChild, left(each.lowS, each.highS, now));
    write(row.lastChild, at(model, each));
  }
  write(byId("now-hurts"), situation.hurts ? shown(`Hurts ${situation.hurts}.`) : "");
  write(byId("now-advice"), shown(situation.advice));
  const context = led(model.source?.context ?? "").map((word) => ` ${word}`).join("");
  optionRows.show(options, (each) => `${each.command}${context}`, (each) => option(`${each.command}${context}`, each.effect));
}

/** Between which times of day it comes. */
function at(model, { lowS, highS }) {
  const [low, high] = [clockTime(model.epoch + lowS), clockTime(model.epoch + highS)];
  return low === high ? `at ${low}` : `between ${low} and ${high}`;
}

function option(command, effect) {
  const copied = () => { navigator.clipboard?.writeText(command); write(byId("announce"), "Copied"); };
  return make("li", {}, make("code", {}, command), " ", make("button", { type: "button", "aria-label": shown(`Copy: ${command}`), onclick: copied }, "Copy"), ` ${effect}`);
}
