// Holds the one stream of all tabs, as a SharedWorker: a browser allows six connections a host. It
// keeps the session, the snapshot and what came after it, for tabs that come later.

const MOST_KEPT = 500;
const ports = new Set();
let kept = [];
let session = "";
let running = null;

/** EventSource, which can send no session, by fetch. */
async function follow(hear, signal) {
  for (let last = ""; !signal.aborted; await new Promise((resolve) => setTimeout(resolve, 3000))) {
    try {
      const answer = await fetch("/api/v1/stream", { headers: { "X-Nodelife-Session": session, "Last-Event-ID": last }, signal });
      if (!answer.ok) return hear({ event: "refused", data: "{}" });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (let read; !(read = await reader.read()).done;) {
        const parts = (text + read.value).split("\n\n");
        text = parts.pop();
        for (const part of parts) {
          const { id, event, data } = Object.fromEntries(part.split("\n").map((line) => line.split(/: (.*)/)));
          last = id ?? last;
          if (event) hear({ event, data });
        }
      }
    } catch { /* it is asked again */ }
  }
}

function end() {
  running?.abort();
  running = null;
  kept = [];
}

function begin() {
  end();
  const mine = running = new AbortController();
  follow((message) => {
    if (mine !== running) return;
    const { event } = message;
    if (event === "refused") end();
    if (event === "snapshot") kept = [];
    if (event === "snapshot" || event === "delta") kept.push(message);
    for (const port of ports) port.postMessage(message);
    if (kept.length > MOST_KEPT) begin();
  }, mine.signal);
}

/** A tab says its session, once more to begin anew; "" to get another's; null when it goes. */
export function join(port) {
  port.onmessage = ({ data }) => {
    if (data === null) {
      ports.delete(port);
      if (!ports.size) end();
    } else if (data) {
      session = data;
      for (const message of ports.has(port) ? [] : kept) port.postMessage(message);
      if (!running || ports.has(port)) begin();
      ports.add(port);
    } else port.postMessage({ event: "session", data: session });
  };
}

/** @type {any} */ (globalThis).onconnect = ({ ports: [port] }) => join(port);
