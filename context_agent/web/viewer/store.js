// The page's data, unpacked part by part when it is needed.
"use strict";

/** Return a function from an item's number to a promise of the item. The items are spread over numbered parts. */
function parted(name, sizes, kept) {
  const parts = new Map();
  const part = (at) => {
    const known = parts.get(at) || pageData(`${name}-${at}`);
    parts.delete(at);
    parts.set(at, known);
    if (parts.size > kept) parts.delete(parts.keys().next().value);
    return known;
  };
  return async (number) => {
    let at = 0;
    let first = 0;
    while (number >= first + sizes[at]) {
      first += sizes[at];
      at += 1;
    }
    return (await part(at))[number - first];
  };
}

/** Return the store: `index`, `rows`, `detail(number)` and `text(number)`. */
async function openStore() {
  const index = await pageData("index");
  const rows = index.rows.map((row, number) => ({ ...row, number }));
  return { index, rows, detail: parted("details", index.details, 8), text: parted("texts", index.texts, 32) };
}

/** Return the number of the row with that name: its id, or `id~3` if several files have the same id. */
function rowNamed(rows, name) {
  const found = rows.find((row) => nameOf(rows, row.number) === name);
  return found ? found.number : null;
}

function nameOf(rows, number) {
  const twins = rows.filter((row) => row.id === rows[number].id);
  return twins.length === 1 ? rows[number].id : `${rows[number].id}~${twins.indexOf(rows[number]) + 1}`;
}
