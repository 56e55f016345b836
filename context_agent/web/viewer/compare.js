// The differences between two trajectories.
"use strict";

function comparison(store, rows, details, labels) {
  const found = differences(details[0], details[1]);
  return element("section", { class: "differences", "aria-label": "Differences" },
    element("h2", { text: "Differences" }),
    element("div", { class: "sides" }, figures(rows, labels), rankTable(found.ranking, labels)),
    element("div", { class: "sides" },
      onlyOne(`Documents seen only by ${labels[0]}`, found.onlyA), onlyOne(`Documents seen only by ${labels[1]}`, found.onlyB)),
    element("p", { class: "muted", text: `${counted(found.both, "document")} seen by both.` }),
    element("div", { class: "sides" },
      callList(`Calls only by ${labels[0]}`, found.callsA), callList(`Calls only by ${labels[1]}`, found.callsB)),
  );
}

function figures(rows, labels) {
  const lines = [
    ["ended", (row) => row.stop.replaceAll("_", " ")], ["turns", (row) => number(row.turns)], ["calls", (row) => number(row.calls)],
    ["tokens placed", (row) => number(row.tokens)], ["window", (row) => number(row.window)], ["passages pruned", (row) => number(row.pruned)],
    ["mistakes", (row) => number(row.mistakes)], ["time", (row) => seconds(row.seconds)],
    ["gold seen", (row) => percent(row.seen)], ["gold ranked", (row) => percent(row.ranked)], ["gold pruned", (row) => (row.gold_pruned === null ? "" : number(row.gold_pruned))],
    ["gold lost by pruning", (row) => (row.gold_lost === null ? "" : number(row.gold_lost))],
  ].map(([name, of]) => [name, of(rows[0]), of(rows[1])]).filter(([, a, b]) => a || b);
  return table("Figures", ["", ...labels], lines.map(([name, a, b]) => [
    element("th", { scope: "row", text: a === b ? name : `${name} ≠` }), element("td", { class: "number", text: a }), element("td", { class: "number", text: b }),
  ]), lines.map(([, a, b]) => a !== b));
}

function rankTable(entries, labels) {
  if (!entries.length) return element("p", { class: "muted", text: "Neither has a ranking." });
  const place = (value) => element("td", { class: "number", text: value === null ? "–" : value });
  return table("Rank in the final ranking", ["document", ...labels], entries.map((entry) => [
    element("th", { scope: "row" }, element("span", { dir: "auto", text: entry.title || entry.id }), " ", goldMark(entry.gold)), place(entry.a), place(entry.b),
  ]), entries.map((entry) => entry.a !== entry.b));
}

function table(caption, heads, rows, differ) {
  return element("div", { class: "scroll" }, element("table", {},
    element("caption", { text: caption }),
    element("thead", {}, element("tr", {}, heads.map((head, at) => element("th", { scope: "col", class: at ? "number" : null, text: head })))),
    element("tbody", {}, rows.map((cells, at) => element("tr", { class: differ[at] ? "differs" : null }, cells)))));
}

function onlyOne(title, documents) {
  const items = documents.map((one) => element("li", {}, element("span", { dir: "auto", text: one.title || one.id }), " ", element("code", { class: "muted", text: one.id }), " ", goldMark(one.gold)));
  return folded(title, items);
}

function callList(title, lines) {
  return folded(title, lines.map((line) => element("li", {}, element("code", { dir: "auto", text: line }))));
}

function folded(title, items) {
  const made = element("details", {}, element("summary", { text: `${title}: ${number(items.length)}` }), element("ul", { class: "names" }, items));
  made.open = items.length > 0 && items.length <= 12;
  return made;
}
