// The other clusters that daemons of the same user watch on this machine: what happens there, trouble
// first, and how to open the page of each, which asks for a session of its own.

import { copier } from "./now.js";
import { byId, Rows } from "./rows.js";
import { ask } from "./session.js";
import { led, make } from "./text.js";

const EVERY_MS = 10_000;
const rows = new Rows(byId("clusters"));

async function look() {
  const answer = await ask("/api/v1/clusters");
  const { items } = answer.ok ? await answer.json() : { items: [] };
  byId("others").hidden = !items.length;
  rows.show(items, JSON.stringify, row);
}

/** Look now, and again as long as the page is seen. */
export function lookAround() {
  const again = () => { if (!document.hidden) look().catch(() => {}); }; // the stream says that the daemon is gone
  again();
  setInterval(again, EVERY_MS);
}

function row({ contexts, context, server, level, sentence, url }) {
  const command = ["kubectl nodelife ui", ...led(context)].join(" ");
  const open = url ? [make("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, "Its page"), " "] : [];
  return make("li", { "data-level": level }, make("b", {}, contexts || server), ` ${sentence} `, ...open, make("code", {}, command), " ", copier(command));
}
