// The session goes as a header with each request: a cookie would go to every port of this machine.

export const session = () => sessionStorage.nodelife ?? "";

export const keep = (found) => { sessionStorage.nodelife = found; };

const sent = (headers = {}) => ({ "X-Nodelife-Session": session(), ...headers });

export const ask = (path) => fetch(path, { headers: sent() });

/** The documents of an answer that has one a line, as they come. */
async function* documents(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let read; !(read = await reader.read()).done;) {
    const lines = (text + read.value).split("\n");
    text = lines.pop();
    yield* lines.map((line) => JSON.parse(line));
  }
  if (text) yield JSON.parse(text);
}

/** What acts would do, as the daemon tells it while it plays, which changes nothing anywhere: what is waited for in words (`waits`), last the answer or an `error`; `over`: the session is. */
export async function* played(acts, signal = null) {
  const answer = await post("/api/v1/what-if", { acts }, signal);
  if (answer.status === 401) { yield { over: true }; return; }
  if (answer.status === 429) { yield { waits: "Another question is being played; try again soon." }; return; }
  for await (const told of documents(answer)) yield told.progress ? { ...told, waits: `${told.progress.says} (${Math.round(told.progress.seconds)}s) …` } : told;
}

/** POST, as the server takes it: a form cannot send this. */
export const post = (path, asked, signal = null) => fetch(path, { signal, method: "POST", headers: sent({ "X-Nodelife": "1", "Content-Type": "application/json" }), body: JSON.stringify(asked) });
