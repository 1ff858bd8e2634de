// The lists beside the wall: states, the table, what comes next, works in progress.

import { byId, Rows, stretch, widthOf, write } from "./rows.js";
import { palette, shape, sharp } from "./shapes.js";
import { between, counted, duration, fullName, make, press, shown, when } from "./text.js";
import { timeLine } from "./time_line.js";

const MOST_ROWS = 200;
const MOST_NEXT = 40;
const FEW_ALIKE = 2;

const SETTLED = new Set(["applied", "confirmed", "decided", "superseded", "failed", "held"]);
const MOST_SETTLED = 5;
const PAST = 1 / 6; // of the time ahead
const soonest = (a, b) => a.low - b.low;

export const link = (text, address) => press(text, () => { location.hash = address; });
export const addressOf = (kind, ...names) => `#/${kind.toLowerCase()}/${names.filter(Boolean).map(encodeURIComponent).join("/")}`;

let legendOf = null;

export function legend(model, nodes) {
  const colours = palette(model.states);
  const list = byId("legend");
  if (legendOf !== colours) {
    legendOf = colours;
    list.replaceChildren(...model.states.map((state) => legendItem(state, colours.of[state])));
  }
  const counts = new Array(model.states.length).fill(0);
  for (const node of nodes) counts[node.state] += 1;
  [...list.children].forEach((item, state) => {
    item.className = counts[state] ? "" : "none";
    item.lastChild.textContent = shown(`${model.states[state]} ${counts[state]}`);
  });
}

function legendItem(state, colour) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  canvas.style.width = canvas.style.height = "18px";
  shape(sharp(canvas, 18, 18), state, 9, 9, 6.5, colour);
  return make("li", {}, canvas, make("span"));
}

export function table(nodes, now) {
  if (!byId("table-box").open) return;
  const rows = nodes.slice(0, MOST_ROWS);
  byId("table-note").textContent = nodes.length > MOST_ROWS
    ? `${MOST_ROWS} of ${nodes.length} nodes, trouble first; a filter shows others.` : `${counted(nodes.length, "node")}, trouble first.`;
  const keyOf = (node) => cells(node).join("\n");
  const made = tableRows.show(rows, keyOf, (node) => make("tr", {}, make("th", { scope: "row" }, link(node.name, addressOf("node", node.name))),
    ...cells(node).slice(1).map((text) => make("td", {}, text)), make("td", { class: "when" })));
  for (const node of rows) write(made.get(keyOf(node)).lastChild, node.action ? when(node.low, node.high, now) : "");
}

const tableRows = new Rows(byId("rows"));
const cells = (node) => [node.name, node.zoneName || "<none>", node.word, node.pods ?? "<unknown>", node.action || "<none>"];

/** What comes next, as rows; of a kind in a zone those that come together are one row, and all of many. */
export function upcoming(nodes) {
  const due = nodes.filter((node) => node.low !== null);
  const few = due.length <= MOST_NEXT;
  const groups = new Map();
  for (const node of due) {
    const action = node.action.startsWith("DeletePod") ? "DeletePod" : node.action;
    const span = few ? `${Math.round(node.low)}\n${Math.round(node.high)}` : "";
    const key = `${node.zoneName}\n${action}\n${span}`;
    const group = groups.get(key) ?? { low: Infinity, high: -Infinity, zone: node.zoneName, action, nodes: [], waiting: 0 };
    group.low = Math.min(group.low, node.low);
    group.high = Math.max(group.high, node.high);
    group.nodes.push(node);
    group.waiting += node.waiting;
    groups.set(key, group);
  }
  return [...groups.values()].flatMap((group) => (few && group.nodes.length <= FEW_ALIKE ? group.nodes.map(alone) : [together(group)]))
    .sort(soonest).slice(0, MOST_NEXT);
}

const alone = (node) => ({ low: node.low, high: node.high, node: node.name, says: sentence(node) });

const together = ({ low, high, zone, action, nodes, waiting }) => ({ low, high, zone,
  says: `${action} on ${counted(nodes.length, "node")}${waiting ? `; ${counted(waiting, "pod")} wait for deletion` : ""}` });

const sentence = (node) => (node.waiting > 1 ? `${node.action} (${node.waiting} pods wait for deletion)` : node.action);

/** What came true of late, as rows of the past; the same of several objects within a second is one row. */
function settled(model, now, past) {
  const groups = new Map();
  for (const change of [...model.changes.values()].sort((a, b) => b.id - a.id)) {
    const { action, kind, outcome, atS } = change;
    if (!SETTLED.has(outcome) || atS > now || now - atS > past) continue;
    const key = `${outcome} ${action} ${kind} ${Math.round(atS)}`;
    const group = groups.get(key);
    if (group) group.push(change);
    else if (groups.size < MOST_SETTLED) groups.set(key, [change]);
  }
  return [...groups.values()].map(came).sort((a, b) => a.low - b.low);
}

function came([change, ...others]) {
  const { action, kind, outcome, atS, id, name, node } = change;
  const row = { low: atS, high: atS, outcome, id };
  if (others.length) return { ...row, says: `${action} on ${counted(others.length + 1, kind)}` };
  return kind === "Node" ? { ...row, node: name, says: action } : { ...row, node: node || undefined, says: `${action} ${kind} ${fullName(change)}` };
}

const nextRows = new Rows(byId("next-list"));

/** What comes, then what has come of late, on one line of time. */
export function next(model, nodes, now, span) {
  const rows = [...upcoming(nodes).filter((row) => row.low - now <= span), ...settled(model, now, span * PAST)];
  const ahead = rows.filter((row) => !row.outcome).length;
  byId("next-none").hidden = ahead > 0;
  write(byId("next-none"), `Nothing within ${duration(span)}.`);
  const start = ahead < rows.length ? now - span * PAST : now;
  const line = timeLine([[now, now], ...rows.map((row) => [row.low, row.high])], start, now + span);
  const keyOf = (row) => (row === AXIS ? "axis" : `${row.outcome ?? ""} ${row.id ?? ""} ${row.node ?? `zone ${row.zone}`} ${row.says}`);
  const made = nextRows.show(rows.length ? [AXIS, ...rows] : [], keyOf, nextRow);
  for (const row of rows) {
    const [first, track] = made.get(keyOf(row)).children;
    write(first, row.outcome ? `${duration(now - row.low)} ago` : when(row.low, row.high, now));
    stretch(track.firstChild, line.share(row.low), line.share(row.high));
    track.lastChild.style.left = `${line.share(now) * 100}%`;
  }
  if (rows.length) axis(made.get("axis").children[1], line, now);
}

const AXIS = {};

function nextRow(row) {
  if (row === AXIS) return make("li", { class: "axis", "aria-hidden": "true" }, make("span"), make("span"), make("span"));
  const who = row.node === undefined ? (row.zone === undefined ? "" : link(`zone ${row.zone || "<none>"}`, addressOf("zone", row.zone)))
    : link(row.node, addressOf("node", row.node));
  const what = make("span", {}, make("span", { class: "tag" }, row.outcome), " ", who, who ? ": " : "", row.says);
  const track = make("span", { class: row.outcome ? "track past" : "track", "aria-hidden": "true" }, make("span"), make("i"));
  return make("li", {}, make("span", { class: "when" }), track, what);
}

/** Now, and the stretches that are left out, where there is room to say so. */
function axis(track, line, now) {
  const [room, marks] = [64 / widthOf(track), [[line.share(now), "now"]]];
  for (const { share, seconds } of line.folds) {
    const last = marks.length > 1 ? marks.at(-1)[0] : -1;
    if (share - last > room) marks.push([share, `/ ${duration(seconds)} /`]);
  }
  while (track.children.length > marks.length) track.lastChild.remove();
  while (track.children.length < marks.length) track.append(make("span"));
  marks.forEach(([share, text], at) => { track.children[at].style.left = `${share * 100}%`; write(track.children[at], text); });
}

const workRows = new Rows(byId("works-list"));

/** Promised against real, what is waited for and since when. */
export function works(model, now) {
  byId("works-none").hidden = model.works.length > 0;
  for (const [key, row] of workRows.show(model.works, JSON.stringify, workRow)) {
    const { sinceS, promised, expected, waits } = JSON.parse(key);
    const late = promised && now > promised[1] ? `, ${duration(now - promised[1])} late` : "";
    const first = promised ? `promised ${between(model.epoch, ...promised)}${late}` : "no end promised";
    const end = expected ? `expected ${now > expected[1] ? "by now" : when(...expected, now)}` : "no end expected";
    write(row.querySelector(".when"), `for ${duration(now - sinceS)}; ${first}; ${end}`);
    row.querySelectorAll(".since").forEach((mark, at) => write(mark, `for ${duration(now - waits[at].sinceS)}`));
  }
}

function workRow(work) {
  const name = fullName(work);
  const bar = make("progress", { max: String(Math.max(1, work.total)), "aria-label": shown(`${work.kind} ${name}`) });
  bar.value = work.done;
  return make("li", {}, make("b", {}, `${work.kind} ${name} `), bar, ` ${work.done} of ${work.total} `, work.sentence, make("p", { class: "when" }),
    make("ul", {}, ...work.waits.map(({ what, because, sinceS }) => make("li", {}, `waits for ${what} `, make("span", { class: sinceS === null ? "" : "since tag" }), ` ${because}`)),
      ...work.budgets.map((budget) => make("li", { class: "dim" }, `budget ${budget}`))), make("code", {}, work.command));
}
