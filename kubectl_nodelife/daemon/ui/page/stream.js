// The stream of the daemon: through the worker that all tabs share, or this tab's own where the
// browser has no such workers.

import { session } from "./session.js";
import { join } from "./stream_worker.js";

let port = null;

function reach() {
  if (port) return;
  if (typeof SharedWorker === "undefined") {
    const { port1, port2 } = new MessageChannel();
    join(port1);
    port = port2;
  } else {
    // Trusted types: the only address of a script that is ever made here.
    const policy = globalThis.trustedTypes?.createPolicy("nodelife", { createScriptURL: () => "/stream_worker.js" });
    ({ port } = new SharedWorker(policy?.createScriptURL("") ?? "/stream_worker.js", { name: "nodelife", type: "module" }));
  }
  port.start();
  addEventListener("pagehide", () => port.postMessage(null));
  addEventListener("pageshow", (shown) => { if (shown.persisted) location.reload(); });
}

/** The session of another tab; "" for none. */
export const borrowed = () => new Promise((resolve) => {
  reach();
  port.onmessage = ({ data }) => resolve(data.data);
  port.postMessage("");
});

export function connect(take, refused) {
  reach();
  port.onmessage = ({ data: { event, data } }) => (event === "refused" ? refused() : take(event, JSON.parse(data)));
  const begin = () => port.postMessage(session());
  begin();
  return begin;
}
