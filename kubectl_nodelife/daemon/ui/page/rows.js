// Lists whose rows stay while what they show is the same.

export const byId = (id) => document.getElementById(id);

export const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };

/** A list keeps the focus and the place to which it is scrolled when it is made anew. */
export function fill(list, items) {
  const top = list.scrollTop;
  const focused = list.contains(document.activeElement) ? document.activeElement.textContent : null;
  list.replaceChildren(...items);
  list.scrollTop = top;
  if (focused !== null) [...list.querySelectorAll("button")].find((b) => b.textContent === focused)?.focus();
}

/** A list of which only new rows are made, and those in another place are moved. */
export class Rows {
  constructor(list) {
    Object.assign(this, { list, rows: new Map() });
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
