// The answer: ranked documents with their best sentence marked, and buttons that judge them.
"use strict";

const LONG = 480;
const BEFORE = 140;
const AFTER = 240;
const CHIPS = 6;
const LONGEST_CHIP = 60;

/**
 * Return one document of the ranking.
 *
 * `actions` has `filter(field, value)` and `judge(document, relevant)`. If documents cannot be judged, `judge` is null.
 */
function rankedDocument(document, rank, isProbability, actions) {
  const title = document.title || document.id;
  const best = document.best_sentence;
  const lead = document.chunks.find((chunk) => best && chunk.id === best.passage) || document.chunks[0];
  const others = document.chunks.filter((chunk) => chunk !== lead);
  const head = element("div", { class: "cardhead" },
    element("h3", { dir: "auto", text: title }),
    isProbability ? element("span", { class: "score", title: "Probability that this document belongs to the evidence", text: percentOf(document.score) }) : null);
  return element("li", { class: "card", value: rank, data: { document: document.id } },
    element("span", { class: "rank", "aria-hidden": "true", text: rank }),
    head,
    title === document.id ? null : element("p", { class: "source muted", dir: "auto", text: document.id }),
    lead ? passageText(lead, best, title) : null,
    others.length ? morePassages(others, title) : null,
    chips(document, actions.filter),
    actions.judge ? judgeButtons(document, title, actions.judge) : null);
}

function percentOf(score) {
  return `${Math.round(score * 100)} %`;
}

function morePassages(chunks, title) {
  return element("details", { class: "more" },
    element("summary", { text: chunks.length === 1 ? "1 more passage" : `${chunks.length} more passages` }),
    chunks.map((chunk) => passageText(chunk, null, title)));
}

/** Return a passage with its best sentence marked. A long one is shortened, with a button that shows the rest. */
function passageText(chunk, best, title) {
  const characters = Array.from(unwrapped(chunk.text));
  const [start, end] = best && best.passage === chunk.id ? [best.start, best.end] : [0, 0];
  const part = (from, to) => characters.slice(from, to).join("");
  const heading = headingSize(chunk.text, title);
  const skipped = end > start && start < heading ? 0 : heading;
  const from = characters.length > LONG ? Math.max(skipped, wordStart(characters, start - BEFORE)) : skipped;
  const to = characters.length > LONG ? wordStart(characters, Math.max(end, start) + AFTER) : characters.length;
  const node = element("p", { class: "passage", dir: "auto" });
  const show = (first, last) => node.replaceChildren(
    first > skipped ? "… " : "", plain(part(first, Math.max(first, start))),
    end > start ? element("mark", { text: part(start, end) }) : "",
    plain(part(Math.max(first, end), last)), last < characters.length ? " …" : "");
  show(from, to);
  if (from === skipped && to >= characters.length) return node;
  const button = element("button", { type: "button", class: "quiet", "aria-expanded": "false", text: "Show the whole passage", on: { click: () => {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    button.textContent = open ? "Show the whole passage" : "Show less";
    show(open ? from : skipped, open ? to : characters.length);
  } } });
  return [node, button];
}

/** Return the length of the Markdown heading at the start of a passage if it only repeats the title, else 0. */
function headingSize(text, title) {
  const heading = /^#{1,6}[ \t]+([^\n]*)\n+/.exec(text);
  return heading && heading[1].trim() === title.trim() ? Array.from(heading[0]).length : 0;
}

/** Return the text with spaces in place of line ends that only wrap lines. Its length stays the same. */
function unwrapped(text) {
  return text.replace(/([^\n])\n(?!\s*(?:\n|[|#>*+-]|\d+[.)]))/g, "$1 ");
}

/** Return the start of the word at an offset in the text. */
function wordStart(characters, offset) {
  let at = Math.min(Math.max(offset, 0), characters.length);
  if (at === 0 || at === characters.length) return at;
  const least = Math.max(0, at - 24);
  while (at > least && characters[at - 1].trim()) at -= 1;
  return at > least ? at : offset;
}

/** Return the metadata as buttons that add a filter. Values that the head already shows are left out. */
function chips({ id, title, metadata }, filter) {
  const isShort = (value) => ["string", "number", "boolean"].includes(typeof value) && String(value).length <= LONGEST_CHIP;
  const entries = Object.entries(metadata).filter(([, value]) => isShort(value) && value !== id && value !== title);
  if (!entries.length) return null;
  const chip = ([field, value]) => element("li", {},
    element("button", { type: "button", class: "chip", title: "Add as a filter", "aria-label": `Filter: ${plain(field)} is ${plain(value)}`, on: { click: () => filter(field, String(value)) } },
      element("span", { class: "muted", text: field }), " ", element("span", { dir: "auto", text: value })));
  return element("ul", { class: "chips" }, entries.slice(0, CHIPS).map(chip));
}

function judgeButtons(document, title, judge) {
  return judgment(`Judge ${plain(title)}`, [["Relevant", "yes", true], ["Not relevant", "no", false]], (relevant) => judge(document, relevant));
}

/** Return a group of buttons in which at most one is pressed. `send(value)` returns a promise. */
function judgment(label, choices, send) {
  const buttons = choices.map(([text, kind, value]) => element("button", { type: "button", class: `judge ${kind}`, "aria-pressed": "false", text, on: { click: async (event) => {
    if (event.currentTarget.getAttribute("aria-pressed") === "true") return;
    const pressed = event.currentTarget;
    if (await send(value)) for (const button of buttons) button.setAttribute("aria-pressed", String(button === pressed));
  } } }));
  return element("div", { class: "judgment", role: "group", "aria-label": label }, buttons);
}

/** Return a notice to read before the ranking, or null if there is none. */
function verdictOf(answer) {
  const lines = [];
  if (!answer.documents.length) lines.push("Nothing was found. Ask in other words, or remove a filter.");
  else if (answer.sufficient === false) lines.push("The documents do not seem to answer this question. These are the nearest.");
  if (answer.error) lines.push(`The search was cut short: ${answer.error}.`);
  else if (!["finished", "no_ranking"].includes(answer.stop_reason)) lines.push(`The search was cut short by its limit (${answer.stop_reason.replaceAll("_", " ")}).`);
  return lines.length ? element("p", { class: "notice", text: lines.join(" ") }) : null;
}
