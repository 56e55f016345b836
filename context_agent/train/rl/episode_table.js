// A table of episodes to sort by any column and to filter by text.
"use strict";

const SHOWN = 200;

/** Compares two cells: numbers by value, other values as text, missing ones last. */
function compareCells(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}

function cellText(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "number" && !Number.isInteger(value) ? value.toFixed(3) : String(value);
}

function episodeTable({ columns, rows, all }) {
  const state = { column: 0, down: true, text: "", shown: SHOWN };
  const count = element("p", { class: "muted", role: "status" });
  const more = element("button", { type: "button", text: "Show more", on: { click: () => { state.shown += SHOWN; draw(); } } });
  const heads = columns.map((name, at) => element("button", { type: "button", text: name.replaceAll("_", " "), on: { click: () => sortBy(at) } }));
  const body = element("tbody");
  const cells = heads.map((button) => element("th", { scope: "col" }, button));
  const table = element("table", {}, element("thead", {}, element("tr", {}, cells)), body);
  const filter = element("input", { type: "search", name: "filter", autocomplete: "off", on: { input: (event) => { state.text = event.target.value.toLowerCase(); state.shown = SHOWN; draw(); } } });
  function sortBy(at) {
    state.down = state.column === at ? !state.down : true;
    state.column = at;
    draw();
  }
  function draw() {
    const words = state.text.split(" ").filter(Boolean);
    const found = rows.filter((row) => words.every((word) => row.some((value) => typeof value === "string" && value.toLowerCase().includes(word))));
    const sign = state.down ? -1 : 1;
    found.sort((a, b) => {
      const [first, second] = [a[state.column], b[state.column]];
      const missing = [first, second].some((value) => value === null || value === undefined);
      return missing ? compareCells(first, second) : sign * compareCells(first, second);
    });
    cells.forEach((cell, at) => cell.setAttribute("aria-sort", at !== state.column ? "none" : state.down ? "descending" : "ascending"));
    body.replaceChildren(...found.slice(0, state.shown).map((row) => element("tr", {}, row.map((value) => element("td", { class: typeof value === "number" ? "number" : null, text: cellText(value) })))));
    count.textContent = `${Math.min(state.shown, found.length).toLocaleString("en")} of ${found.length.toLocaleString("en")} episodes shown; the run has ${all.toLocaleString("en")}`;
    more.hidden = state.shown >= found.length;
  }
  draw();
  return [element("p", {}, element("label", {}, element("span", { text: "Find an episode, a question or an ending " }), filter)), count, element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Episodes" }, table), more];
}

pageData("episodes").then((data) => {
  document.getElementById("episodes").append(...episodeTable(data));
  document.documentElement.dataset.ready = "";
});
