// The sub-agents of a trajectory as lanes. Those of a turn run in parallel, and the turn waits for the longest.
"use strict";

// The most steps of a sub-agent that its lane shows. A trajectory can state any number.
const MAX_LANE_CELLS = 200;

/** Return a stage for each turn that started sub-agents, or null if there is none. */
function lanesOf(store, detail) {
  const stages = detail.turns.map((turn) => ({ turn: turn.turn, searchers: turn.results.flatMap((result) => result.delegated) })).filter((stage) => stage.searchers.length);
  if (!stages.length) return null;
  return element("section", { class: "lanes" },
    element("h3", { text: `Searchers, ${counted(detail.critical_steps, "critical step")}` }),
    stages.map((stage) => stageOf(store, stage)));
}

function stageOf(store, { turn, searchers }) {
  const longest = Math.max(1, ...searchers.map((one) => one.steps));
  const summary = `${counted(searchers.length, "searcher")} in parallel; the turn waited for ${counted(longest, "step")}`;
  return element("div", { class: "stage" },
    element("p", { class: "muted", text: `Turn ${turn + 1}: ${summary}` }),
    element("ol", { class: "lanelist" }, searchers.map((one) => element("li", {}, laneOf(store, one, longest)))));
}

/** Return one lane: a cell per step, with the sub-agent's context if its own trajectory is on the page. */
function laneOf(store, one, longest) {
  const place = one.id === "" ? null : rowNamed(store.rows, one.id);
  const cells = Array.from({ length: Math.min(longest, MAX_LANE_CELLS) }, (_, step) => element("span", { class: step < one.steps ? "cell" : "cell idle" }));
  const said = [`${counted(one.documents, "document")}, ${counted(one.steps, "step")}, ${counted(one.tokens, "token")}, ${one.stop_reason.replaceAll("_", " ")}`];
  if (place !== null) store.detail(place).then((detail) => fill(cells, detail, store.rows[place].window));
  return [
    element("span", { class: "lane", "aria-hidden": "true" }, cells),
    place === null
      ? element("span", { class: "task", dir: "auto", text: one.task })
      : element("button", { type: "button", class: "task", dir: "auto", text: one.task, on: { click: () => openRow(store, place) } }),
    element("span", { class: "muted", text: said.join("") }),
    one.error ? element("span", { class: "bad", dir: "auto", text: ` ⚠ ${one.error}` }) : null,
  ];
}

function fill(cells, detail, window) {
  const contexts = contextOf(detail);
  const scale = scaleOf(contexts, window);
  contexts.forEach((context, step) => cells[step]?.replaceChildren(thinStrip(context, detail.header.budget, scale)));
}

/** Return a link from a sub-agent to the trajectory that started it, or null for other trajectories. */
function parentOf(store, row) {
  if (row.parent === null) return null;
  const parent = rowNamed(store.rows, row.parent);
  return element("p", { class: "muted" }, "A searcher of ",
    parent === null
      ? element("code", { text: row.parent })
      : element("button", { type: "button", dir: "auto", text: store.rows[parent].question, on: { click: () => openRow(store, parent) } }));
}

function openRow(store, place) {
  location.hash = `#t=${encodeURIComponent(nameOf(store.rows, place))}`;
}
