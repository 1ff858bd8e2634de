// The lists beside the wall: states, the table, what comes next, what happened, works in progress.

import { palette, shape } from "./shapes.js";
import { counted, duration, make, shown, when } from "./text.js";

const MOST_ROWS = 200;
const MOST_NEXT = 40;
const MOST_HAPPENED = 100;

const byId = (id) => document.getElementById(id);
const link = (text, address) => make("button", { type: "button", class: "link", onclick: () => { location.hash = address; } }, text);
export const addressOf = (kind, ...names) => `#/${kind.toLowerCase()}/${names.map(encodeURIComponent).join("/")}`;

/** A list keeps the focus and the place to which it is scrolled when it is made anew. */
function fill(list, items) {
  const top = list.scrollTop;
  const focused = list.contains(document.activeElement) ? document.activeElement.textContent : null;
  list.replaceChildren(...items);
  list.scrollTop = top;
  if (focused !== null) [...list.querySelectorAll("button")].find((b) => b.textContent === focused)?.focus();
}

const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };

/** Rows that stay while what they show is the same: only a new one is made, and one that moves is moved. */
class Rows {
  constructor(list) {
    Object.assign(this, { list, rows: new Map() });
  }

  /** `make_` makes the row of an item; the key says what it shows. */
  show(items, keyOf, make_) {
    const kept = new Map();
    let place = this.list.firstElementChild;
    for (const item of items) {
      const key = keyOf(item);
      const row = this.rows.get(key) ?? make_(item);
      kept.set(key, row);
      if (row === place) place = place.nextElementSibling;
      else this.list.insertBefore(row, place);
    }
    for (const [key, row] of this.rows) if (!kept.has(key)) row.remove();
    this.rows = kept;
    return kept;
  }
}

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
  const canvas = make("canvas", { width: "36", height: "36", "aria-hidden": "true" });
  canvas.style.width = canvas.style.height = "18px";
  const context = canvas.getContext("2d");
  context.setTransform(2, 0, 0, 2, 0, 0);
  shape(context, state, 9, 9, 6.5, colour);
  return make("li", {}, canvas, make("span"));
}

export function table(nodes, now) {
  if (!byId("table-box").open) return;
  const rows = nodes.slice(0, MOST_ROWS);
  byId("table-note").textContent = nodes.length > MOST_ROWS
    ? `${MOST_ROWS} of ${nodes.length} nodes, trouble first; a filter shows others.` : `${counted(nodes.length, "node")}, trouble first.`;
  fill(byId("rows"), rows.map((node) => make("tr", {},
    make("th", { scope: "row" }, link(node.name, addressOf("node", node.name))),
    make("td", {}, node.zoneName || "<none>"), make("td", {}, node.word),
    make("td", {}, node.pods === null ? "<unknown>" : String(node.pods)),
    make("td", {}, node.action || "<none>"),
    make("td", { class: "when" }, node.action ? when(node.low, node.high, now) : ""))));
}

/** What comes next, as rows; many of one kind in a zone are one row. */
export function upcoming(nodes) {
  const due = nodes.filter((node) => node.low !== null);
  if (due.length <= MOST_NEXT) {
    return due.map((node) => ({ low: node.low, high: node.high, node: node.name, says: sentence(node) })).sort((a, b) => a.low - b.low);
  }
  const groups = new Map();
  for (const node of due) {
    const action = node.action.startsWith("DeletePod") ? "DeletePod" : node.action;
    const key = `${node.zoneName}\n${action}`;
    const group = groups.get(key) ?? { low: Infinity, high: -Infinity, zone: node.zoneName, action, count: 0, waiting: 0 };
    group.low = Math.min(group.low, node.low);
    group.high = Math.max(group.high, node.high);
    group.count += 1;
    group.waiting += node.waiting;
    groups.set(key, group);
  }
  return [...groups.values()].map((group) => ({ ...group, says: `${group.action} on ${counted(group.count, "node")}${group.waiting ? `; ${counted(group.waiting, "pod")} wait for deletion` : ""}` }))
    .sort((a, b) => a.low - b.low).slice(0, MOST_NEXT);
}

function sentence(node) {
  const more = node.waiting > 1 ? ` (${node.waiting} pods wait for deletion)` : "";
  return `${node.action}${more}`;
}

export function next(nodes, now, span) {
  const rows = upcoming(nodes).filter((row) => row.low - now <= span);
  byId("next-none").hidden = rows.length > 0;
  byId("next-none").textContent = `Nothing within ${duration(span)}.`;
  fill(byId("next-list"), rows.map((row) => {
    const bar = make("span");
    const share = (at) => Math.max(0, Math.min(1, (at - now) / span)) * 100;
    bar.style.left = `${share(row.low)}%`;
    bar.style.width = `${share(row.high) - share(row.low)}%`;
    const who = row.node !== undefined ? link(row.node, addressOf("node", row.node)) : link(`zone ${row.zone || "<none>"}`, addressOf("zone", row.zone));
    return make("li", {}, make("span", { class: "when" }, when(row.low, row.high, now)),
      make("span", { class: "track", "aria-hidden": "true" }, bar), make("span", {}, who, ": ", row.says));
  }));
}

const KINDS = { Node: "node", Pod: "pod", DaemonSet: "daemonset", Zone: "zone" };

function objectLink(change) {
  const text = change.namespace ? `${change.namespace}/${change.name}` : change.name;
  const kind = KINDS[change.kind];
  if (!kind) return make("span", {}, `${change.kind} ${text}`);
  return link(`${change.kind} ${text}`, change.namespace ? addressOf(kind, change.namespace, change.name) : addressOf(kind, change.name));
}

const happenedRows = new Rows(byId("happened-list"));

export function happened(model, now) {
  const newest = [...model.changes.values()].sort((a, b) => b.id - a.id).slice(0, MOST_HAPPENED);
  byId("happened-none").hidden = newest.length > 0;
  const keyOf = (change) => `${change.id} ${change.outcome} ${change.reason}`;
  const rows = happenedRows.show(newest, keyOf, (change) => changeRow(model, change));
  for (const change of newest) write(rows.get(keyOf(change)).firstChild, `${duration(now - change.atS)} ago`);
}

function changeRow(model, change) {
  const row = make("li", { "data-change": String(change.id) },
    make("span", { class: "when" }),
    make("span", {}, make("span", { class: "tag" }, change.outcome)),
    make("span", { class: "what" }, `${change.action} `, objectLink(change), ` by ${shown(change.controller)}`));
  const why = make("span", { class: "why" }, change.reason);
  if (change.cause !== null && model.changes.has(change.cause)) {
    why.append(" ", make("button", { type: "button", class: "link", onclick: () => showChange(change.cause) }, "its cause"));
  }
  row.append(why);
  return row;
}

function showChange(id) {
  const row = document.querySelector(`[data-change="${Number(id)}"]`);
  for (const marked of document.querySelectorAll(".marked")) marked.classList.remove("marked");
  row?.classList.add("marked");
  row?.scrollIntoView({ block: "nearest" });
}

export function works(model) {
  byId("works-none").hidden = model.works.length > 0;
  fill(byId("works-list"), model.works.map((work) => {
    const name = work.namespace ? `${work.namespace}/${work.name}` : work.name;
    const bar = make("progress", { max: String(Math.max(1, work.total)), "aria-label": shown(`${work.kind} ${name}`) });
    bar.value = work.done;
    const done = work.kind === "Node" ? [] : [bar, ` ${work.done} of ${work.total} `];
    return make("li", {}, make("b", {}, `${work.kind} ${name} `), ...done, make("span", {}, work.sentence), " ", make("code", {}, work.command));
  }));
}
