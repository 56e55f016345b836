// The list of trajectories with its filters. Only the visible rows are in the document.
"use strict";

const ROW_HEIGHT = 82;
const AROUND = 8;

/** Return the list as `{ node, order(), mark(number) }`. When the reader selects a row, it calls `choose(number)`. */
function trajectoryList(store, choose) {
  const { rows } = store;
  const filter = { order: "file" };
  let numbers = [];
  let current = null;
  const sheet = element("div", { class: "sheet", role: "list", "aria-label": "Trajectories" });
  const box = element("div", { class: "listbox" }, sheet);
  const count = element("p", { class: "count muted", role: "status" });
  const draw = () => {
    const first = Math.max(0, Math.floor(box.scrollTop / ROW_HEIGHT) - AROUND);
    const last = Math.min(numbers.length, Math.ceil((box.scrollTop + (box.clientHeight || 800)) / ROW_HEIGHT) + AROUND);
    sheet.style.height = `${numbers.length * ROW_HEIGHT}px`;
    const focused = document.activeElement && sheet.contains(document.activeElement);
    sheet.replaceChildren(...numbers.slice(first, last).map((one, at) => listItem(rows[one], first + at, numbers.length, one === current, choose)));
    if (focused) (sheet.querySelector("[aria-current]") || sheet.querySelector("button"))?.focus({ preventScroll: true });
  };
  const refresh = () => {
    numbers = selectRows(rows, filter);
    count.textContent = `${number(numbers.length)} of ${number(rows.length)} trajectories`;
    box.scrollTop = 0;
    draw();
  };
  box.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  new ResizeObserver(draw).observe(box);
  const mark = (one) => {
    current = one;
    const at = numbers.indexOf(one);
    const top = at * ROW_HEIGHT;
    if (at >= 0 && (top < box.scrollTop || top + ROW_HEIGHT > box.scrollTop + box.clientHeight)) box.scrollTop = Math.max(0, top - box.clientHeight / 2);
    draw();
  };
  const node = element("nav", { class: "list", "aria-label": "Trajectories" }, filters(rows, filter, refresh), count, box);
  refresh();
  return { node, order: () => numbers, mark };
}

function listItem(row, place, total, current, choose) {
  const gold = row.ranked === null ? null : element("span", { class: "badge goldmark", text: `★ ${percent(row.ranked)} ranked, ${percent(row.seen)} seen` });
  const made = element("div", { role: "listitem", class: "item", "aria-setsize": total, "aria-posinset": place + 1 },
    element("button", { type: "button", "aria-current": current ? "true" : null, data: { number: row.number }, on: { click: () => choose(row.number) } },
      element("span", { class: "question", dir: "auto", text: row.parent === null ? row.question : `↳ ${row.question}` }),
      element("span", { class: "meta muted" },
        `${row.stop.replaceAll("_", " ")} · ${counted(row.turns, "turn")} · ${number(row.tokens)} tokens · `, element("span", { class: "runname", text: row.run }), element("br"), gold,
        row.gold_lost ? element("span", { class: "badge bad", text: `${row.gold_lost} gold lost by pruning` }) : null,
        row.gold_pruned > row.gold_lost ? element("span", { class: "badge", text: `${row.gold_pruned - row.gold_lost} gold pruned and restored` }) : null,
        row.mistakes ? element("span", { class: "badge bad", text: counted(row.mistakes, "mistake") }) : null,
        row.problem ? element("span", { class: "badge bad", text: "⚠ does not replay" }) : null)));
  made.style.top = `${place * ROW_HEIGHT}px`;
  return made;
}

function filters(rows, filter, refresh) {
  const gold = rows.some((row) => row.ranked !== null);
  const set = (name, of) => (event) => {
    filter[name] = of(event.target);
    refresh();
  };
  const value = (input) => input.value;
  const amount = (input) => (input.value === "" ? null : Number(input.value));
  const checked = (input) => input.checked;
  const field = (label, control) => element("label", {}, element("span", { text: label }), control);
  const input = (name, type, more, of) => element("input", { type, name, ...more, on: { [type === "checkbox" ? "change" : "input"]: set(name, of) } });
  const choice = (name, entries) => element("select", { name, on: { change: set(name, value) } }, entries.map(([key, text]) => element("option", { value: key, text })));
  const orders = Object.entries(ORDERS).filter(([, order]) => gold || !order.gold).map(([key, order]) => [key, order.name]);
  const check = (name, text) => element("label", { class: "check" }, input(name, "checkbox", {}, checked), element("span", { text }));
  const runs = tally(rows, "run");
  return element("form", { class: "filters", role: "search", on: { submit: (event) => event.preventDefault() } },
    field("Find", input("text", "search", { placeholder: "question, query, id, run …", autocomplete: "off" }, value)),
    element("div", { class: "row" },
      field("Stop reason", choice("stop", [["", "any"], ...tally(rows, "stop")])),
      runs.length > 1 ? field("Run", choice("run", [["", "all"], ...runs])) : null,
      field("Sort by", choice("order", orders)),
      check("descending", "largest first")),
    element("details", {}, element("summary", { text: "More filters" }), element("div", { class: "row" },
      field("Turns from", input("least", "number", { min: 0 }, amount)), field("to", input("most", "number", { min: 0 }, amount)),
      gold ? field("Gold ranked, at most %", input("recall", "number", { min: 0, max: 100 }, amount)) : null,
      gold ? check("goldPruned", "gold pruned") : null, check("mistakes", "with mistakes"), check("problems", "cut or not replaying"))));
}

function tally(rows, name) {
  const counts = new Map();
  for (const row of rows) counts.set(row[name], (counts.get(row[name]) || 0) + 1);
  return [...counts].sort(([a], [b]) => a.localeCompare(b)).map(([key, count]) => [key, `${key.replaceAll("_", " ")} (${count})`]);
}
