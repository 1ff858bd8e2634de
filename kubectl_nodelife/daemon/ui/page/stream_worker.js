// A SharedWorker that holds the one stream of all tabs: a browser allows six connections a host.
// It keeps the snapshot and what came after it, for tabs that come later.

const MOST_KEPT = 500;
const ports = new Set();
let kept = [];
let source = null;

function tell(message) {
  for (const port of ports) port.postMessage(message);
}

function begin() {
  source?.close();
  source = new EventSource("/api/v1/stream");
  for (const event of ["snapshot", "delta", "tick", "waiting"]) {
    source.addEventListener(event, ({ data }) => {
      const message = { event, data };
      if (event === "snapshot") kept = [message];
      else if (event === "delta") kept.push(message);
      tell(message);
      if (kept.length > MOST_KEPT) { kept = []; begin(); }
    });
  }
  source.onerror = () => { if (source.readyState === EventSource.CLOSED) tell({ event: "refused", data: "{}" }); };
}

/** @type {any} */ (self).onconnect = ({ ports: [port] }) => {
  ports.add(port);
  port.onmessage = ({ data }) => {
    if (data === "leave") {
      ports.delete(port);
      if (!ports.size && source) { source.close(); source = null; kept = []; }
    } else if (data === "again") begin();
  };
  for (const message of kept) port.postMessage(message);
  if (!source || source.readyState === EventSource.CLOSED) begin();
};
