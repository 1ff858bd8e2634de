// Lists whose rows stay while what they show is the same.

/** @type {(id: string) => any} */
export const byId = (id) => document.getElementById(id);

export const on = (id, event, act) => byId(id).addEventListener(event, act);

export const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };

/** Lay it between two shares of its line. */
export const stretch = (element, low, high) => Object.assign(element.style, { left: `${low * 100}%`, width: `${(high - low) * 100}%` });

/** @type {WeakMap<Element, number>} */
const widths = new WeakMap();
const measured = new ResizeObserver((found) => { for (const { target, contentRect } of found) widths.set(target, contentRect.width); });

/** How wide an element is, as the browser told when that changed: to ask it makes it lay out all that was written so far. */
export function widthOf(element) {
  if (!widths.has(element)) {
    widths.set(element, element.clientWidth);
    measured.observe(element);
  }
  return widths.get(element) || 300;
}

/** A list of which only new rows are made, and those in another place are moved. */
export class Rows {
  rows = new Map();

  constructor(list) {
    this.list = list;
  }

  /** `makeRow` makes the row of an item; the key says what it shows. Key -> row. */
  show(items, keyOf, makeRow) {
    const kept = new Map();
    let place = this.list.firstElementChild;
    for (const item of items) {
      const key = keyOf(item);
      const row = this.rows.get(key) ?? makeRow(item);
      kept.set(key, row);
      if (row === place) place = place.nextElementSibling;
      else this.list.insertBefore(row, place);
    }
    for (const [key, row] of this.rows) if (!kept.has(key)) row.remove();
    this.rows = kept;
    return kept;
  }
}
