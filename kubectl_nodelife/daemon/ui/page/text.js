// Text of the cluster as it is shown: by textContent and fillText only, with marks of writing
// direction and control characters made visible, as the terminal's pages do.

const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/gu;

export function shown(text) {
  return String(text ?? "").replace(UNSAFE, (mark) => {
    const code = mark.codePointAt(0);
    if (code < 0x20 || code === 0x7f) return "^" + String.fromCharCode(code ^ 0x40);
    return code < 0x100 ? `\\x${code.toString(16)}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

/** An element with text and children; attributes are ours, never the cluster's. */
export function make(tag, attributes = {}, ...content) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  for (const part of content) made.append(part instanceof Node ? part : shown(part));
  return made;
}

/** A button that looks like a link. */
export const press = (text, onclick) => make("button", { type: "button", class: "link", onclick }, text);

/** Seconds in kubectl's words: 45s, 4m55s, 2h5m. */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole}s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return whole % 60 ? `${minutes}m${whole % 60}s` : `${minutes}m`;
  return minutes % 60 ? `${Math.floor(minutes / 60)}h${minutes % 60}m` : `${Math.floor(minutes / 60)}h`;
}

/** When something comes that lies between two instants. */
export function when(low, high, now) {
  if (low === null || low === undefined) return "not as things stand";
  if (high - now <= 0.5) return "due now";
  if (high - low < 1) return `in ${duration(high - now)}`;
  return `in ${duration(Math.max(0, low - now))} to ${duration(high - now)}`;
}

/** A countdown: 38s, or 9-14s for what cannot be known more closely. */
export function left(low, high, now) {
  if (high - now <= 0.5) return "now";
  if (high - low < 1) return duration(high - now);
  return `${duration(Math.max(0, low - now))} to ${duration(high - now)}`;
}

/** The time of day of an instant, in seconds since the epoch. */
export const clockTime = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

/** Between which times of day, of instants by the stream's clock. */
export const between = (epoch, ...instants) => [...new Set(instants.map((at) => clockTime(epoch + at)))].join("–");

export const fullName = ({ namespace, name }) => [namespace, name].filter(Boolean).join("/");

export const counted = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

/** A word as a shell takes it. */
export const quoted = (word) => (/^[\w./:@-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** The words that lead a command to a context. */
export const led = (context) => (context ? ["--context", quoted(context)] : []);
