// Assembles the page. The address after # contains what is open; keys move through it.
"use strict";

async function start() {
  const store = await openStore();
  const { rows, index } = store;
  const state = { number: 0, turn: 0, other: null, otherTurn: 0 };
  let panels = [];
  let drawing = 0;
  const main = element("main", { id: "detail", tabindex: -1 });
  const list = trajectoryList(store, (number) => go({ number, turn: 0, other: null }));
  document.getElementById("view").replaceChildren(heading(index, rows), element("div", { class: rows.length > 1 ? "layout" : "layout single" }, rows.length > 1 ? list.node : null, main));

  async function go(change) {
    Object.assign(state, change);
    writeAddress();
    await show();
  }

  function turnTo(side, turn) {
    const at = panels[side].setTurn(turn);
    state[side ? "otherTurn" : "turn"] = at;
    writeAddress();
  }

  async function show() {
    const mine = (drawing += 1);
    list.mark(state.number);
    const shown = state.other === null ? [state.number] : [state.number, state.other];
    const details = await Promise.all(shown.map(store.detail));
    if (mine !== drawing) return;
    panels = shown.map((number, side) => trajectoryPanel(store, rows[number], details[side], (turn) => turnTo(side, turn)));
    const labels = shown.length > 1 ? labelsOf(rows, shown) : [];
    const parts = panels.map((panel, side) => element("div", { class: "side" }, labels.length ? element("p", { class: "sidelabel" }, element("b", { text: labels[side] }), element("span", { class: "muted", text: ` ${rows[shown[side]].policy}, seed ${rows[shown[side]].seed}` })) : null, panel.node));
    main.replaceChildren(
      rows.length > 1 ? partnerChoice(rows, state, (other) => go({ other, otherTurn: 0 })) : "",
      labels.length ? comparison(store, shown.map((number) => rows[number]), details, labels) : "",
      element("div", { class: labels.length ? "sides two" : "" }, parts));
    state.turn = panels[0].setTurn(state.turn);
    if (panels[1]) state.otherTurn = panels[1].setTurn(state.otherTurn);
    document.documentElement.dataset.shown = nameOf(rows, state.number);
  }

  function writeAddress() {
    const parts = [`t=${encodeURIComponent(nameOf(rows, state.number))}`, `turn=${state.turn + 1}`];
    if (state.other !== null) parts.push(`with=${encodeURIComponent(nameOf(rows, state.other))}`);
    history.replaceState(null, "", `#${parts.join("&")}`);
  }

  function readAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    const named = rowNamed(rows, given.get("t"));
    if (named !== null) state.number = named;
    else state.number = list.order()[0] ?? 0;
    state.turn = Math.max(0, (parseInt(given.get("turn"), 10) || 1) - 1);
    state.other = given.has("with") ? rowNamed(rows, given.get("with")) : null;
    state.otherTurn = 0;
  }

  function step(by) {
    const order = list.order();
    const at = order.indexOf(state.number);
    const next = order[at < 0 ? 0 : at + by];
    if (next !== undefined) go({ number: next, turn: 0, other: null });
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea")) return;
    const moves = {
      ArrowDown: () => step(1), ArrowUp: () => step(-1),
      ArrowRight: () => turnTo(0, state.turn + 1), ArrowLeft: () => turnTo(0, state.turn - 1),
      "/": () => document.querySelector("input[name=text]")?.focus(),
    };
    if (!moves[event.key] || (!panels.length && event.key !== "/")) return;
    event.preventDefault();
    moves[event.key]();
  });
  window.addEventListener("hashchange", () => {
    readAddress();
    show();
  });
  readAddress();
  await show();
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

function heading(index, rows) {
  const ignored = index.ignored ? ` ${counted(index.ignored, "other file")} in the folders ${index.ignored === 1 ? "is no trajectory" : "are no trajectories"}.` : "";
  return element("header", {},
    element("h1", { text: document.title }),
    element("p", { class: "muted", text: `${number(rows.length)} shown.${ignored} Keys: ↑ ↓ trajectory, ← → turn, / find.` }),
    index.problems.length ? element("details", { class: "problems", open: true }, element("summary", { text: `⚠ ${counted(index.problems.length, "file")} could not be shown` }), element("ul", { class: "names" }, index.problems.map((text) => element("li", { text })))) : null);
}

/** Return the menu for a second trajectory beside the open one. */
function partnerChoice(rows, state, choose) {
  const { same, rest } = partners(rows, state.number);
  const option = (at) => element("option", { value: at, selected: at === state.other, text: `${rows[at].run}: ${rows[at].question.slice(0, 80)} (${rows[at].policy})` });
  const select = element("select", { name: "partner", on: { change: (event) => choose(event.target.value === "" ? null : Number(event.target.value)) } },
    element("option", { value: "", text: "nothing" }),
    same.length ? element("optgroup", { label: "The same question" }, same.map(option)) : null,
    rest.length ? element("optgroup", { label: "Others" }, rest.map(option)) : null);
  return element("p", { class: "partner" }, element("label", {}, "Compare with ", select),
    same.length && state.other === null ? element("button", { type: "button", text: "Same question, other run", on: { click: () => choose(same[0]) } }) : null);
}

function labelsOf(rows, shown) {
  const names = shown.map((at) => rows[at].run);
  return names[0] === names[1] ? ["A", "B"] : names;
}

start().catch((error) => {
  document.getElementById("view").replaceChildren(element("p", { class: "problems", text: `The page's data could not be read: ${error}` }));
  throw error;
});
