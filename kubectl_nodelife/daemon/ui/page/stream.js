// The stream of the daemon: through the worker that all tabs share, or this tab's own where the
// browser has no such workers.

const EVENTS = ["snapshot", "delta", "tick", "waiting"];

export function connect(take, refused) {
  const hear = ({ event, data }) => (event === "refused" ? refused() : take(event, JSON.parse(data)));
  if (typeof SharedWorker === "undefined") return own(hear);
  // Trusted types: the only address of a script that is ever made here.
  const policy = globalThis.trustedTypes?.createPolicy("nodelife", { createScriptURL: () => "/stream_worker.js" });
  const worker = new SharedWorker(policy?.createScriptURL("") ?? "/stream_worker.js", "nodelife");
  worker.port.onmessage = ({ data }) => hear(data);
  worker.port.start();
  addEventListener("pagehide", () => worker.port.postMessage("leave"));
  addEventListener("pageshow", (shown) => { if (shown.persisted) location.reload(); });
  return () => worker.port.postMessage("again");
}

function own(hear) {
  let source = null;
  const begin = () => {
    source?.close();
    source = new EventSource("/api/v1/stream");
    for (const event of EVENTS) source.addEventListener(event, ({ data }) => hear({ event, data }));
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) hear({ event: "refused", data: "{}" }); };
  };
  begin();
  return begin;
}
