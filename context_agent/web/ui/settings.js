// The filters of a question, and the values that the browser keeps: settings and past questions.
"use strict";

const OPERATORS = [["$eq", "is"], ["$ne", "is not"], ["$gte", "at least"], ["$lte", "at most"]];
const MAX_PAST = 30;

/** Return a value of this page from the browser's storage. Without a value or a storage, return the fallback. */
function stored(storage, name, fallback) {
  try {
    return JSON.parse(storage.getItem(name)) ?? fallback;
  } catch {
    return fallback;
  }
}

function store(storage, name, value) {
  try {
    storage.setItem(name, JSON.stringify(value));
  } catch {
    // If the storage is full, only the history is lost.
  }
}

/** Return a row of the filters: `{ field, operator, value }` in three controls, and a button that removes it. */
function filterRow(filter, changed) {
  const field = element("input", { class: "field", "aria-label": "Field", placeholder: "field", list: "fields", value: filter.field, required: true, on: { input: changed } });
  const operator = element("select", { "aria-label": "Comparison", on: { change: changed } },
    OPERATORS.map(([key, text]) => element("option", { value: key, text, selected: key === filter.operator })));
  const value = element("input", { class: "value", "aria-label": "Value", placeholder: "value", value: filter.value, required: true, on: { input: changed } });
  const remove = element("button", { type: "button", class: "quiet", "aria-label": "Remove this filter", text: "×", on: { click: () => {
    row.remove();
    changed();
    document.getElementById("addfilter").focus();
  } } });
  const row = element("div", { class: "filter" }, field, operator, value, remove);
  return row;
}

/** Return the filters in the form. */
function filtersOf(form) {
  return [...form.querySelectorAll(".filter")].map((row) => {
    const [field, operator, value] = row.querySelectorAll("input, select");
    return { field: field.value.trim(), operator: operator.value, value: value.value.trim() };
  });
}

/** Return the filters in the server's syntax, or null if there are none. */
function whereOf(filters) {
  const conditions = filters.map(conditionOf);
  if (conditions.length < 2) return conditions[0] ?? null;
  return { $and: conditions };
}

/**
 * Return the condition of a filter.
 *
 * In an index, a number and a text are never equal. So a value that looks like a number is compared as both.
 */
function conditionOf({ field, operator, value }) {
  const readings = readingsOf(value).map((reading) => ({ [field]: { [operator]: reading } }));
  if (operator === "$gte" || operator === "$lte") return readings[0];
  return readings.length === 1 ? readings[0] : { [operator === "$eq" ? "$or" : "$and"]: readings };
}

function readingsOf(value) {
  if (value === "true" || value === "false") return [value === "true", value];
  return value !== "" && Number.isFinite(Number(value)) ? [Number(value), value] : [value];
}

/** Return the past questions, the latest first, each once: `{ question, k, effort, filters }`. */
function remembered(past, entry) {
  const same = (other) => other.question === entry.question && JSON.stringify(other.filters) === JSON.stringify(entry.filters);
  return [entry, ...past.filter((other) => !same(other))].slice(0, MAX_PAST);
}

/** Return a random name for this browser's judgments, so that a later judgment replaces an earlier one. */
function judge() {
  const name = stored(ofBrowser, "ctx1-judge", null) || `page-${randomName()}`;
  store(ofBrowser, "ctx1-judge", name);
  return name;
}

function randomName() {
  return [...crypto.getRandomValues(new Uint8Array(8))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
