// One trajectory: its settings, a strip for every turn, the open turn, the final ranking.
"use strict";

/**
 * The panel of a trajectory: `{ node, turns, setTurn(n) }`. It calls `onTurn(n)` when the reader opens another turn.
 */
function trajectoryPanel(store, row, detail, onTurn) {
  const contexts = contextOf(detail);
  const scale = scaleOf(contexts, row.window);
  const open = element("div", { class: "open" });
  const map = turnMap(detail, contexts, scale, (turn) => onTurn(turn));
  const node = element("article", { class: "trajectory" },
    element("h2", { dir: "auto", text: row.question }),
    parentOf(store, row),
    element("p", { class: "story", text: `${storyOf(countsOf(detail))}.` }),
    troubles(row, detail),
    goldLine(detail),
    element("div", { class: "opening" }, element("div", {}, facts(row, detail), map.node), rankingOf(store, detail)),
    lanesOf(store, detail),
    open,
    beginnings(store, detail),
  );
  let zoomed = false;
  const setTurn = (turn) => {
    const at = Math.min(Math.max(turn, 0), contexts.length - 1);
    map.mark(at);
    if (!contexts.length) return at;
    const fitted = contexts[at].used + sum(contexts[at].leaving);
    const zoom = toggle("Fit the strip to what is in view", zoomed, () => {
      zoomed = !zoomed;
      setTurn(at);
      open.querySelector("[aria-pressed]").focus();
    });
    open.replaceChildren(...openTurn(store, detail, contexts, at, zoomed ? fitted : scale, onTurn, zoom));
    return at;
  };
  return { node, turns: contexts.length, setTurn };
}

function toggle(text, on, flip) {
  return element("button", { type: "button", class: "toggle", text, "aria-pressed": String(on), on: { click: flip } });
}

function facts(row, detail) {
  const { header, end } = detail;
  const pairs = [
    ["ended", row.stop.replaceAll("_", " ")], ["turns", number(row.turns)], ["calls", number(row.calls)],
    ["tokens placed", number(row.tokens)], ["critical steps", number(row.critical_steps)], ["time", seconds(row.seconds)], ["mistakes", row.mistakes ? number(row.mistakes) : ""],
    ["confidence", end && end.confidence !== null ? end.confidence.toFixed(2) : ""], ["ids dropped", end ? droppedOf(end) : ""], ["run", row.run], ["policy", header.policy], ["profile", header.profile],
    ["window", number(row.window)], ["seed", String(header.seed)], ["question id", header.question_id], ["corpus", header.corpus],
    ["limits", header.limits.map(([name, value]) => `${name} ${value}`).join(", ")], ["counter", header.counter],
    ["started", header.started], ["version", header.version], ["file", row.file],
  ].filter(([, value]) => value);
  const item = ([name, value]) => element("div", {}, element("dt", { text: name }), element("dd", { text: value }));
  const more = element("details", {}, element("summary", { text: "more" }), element("dl", { class: "facts" }, pairs.slice(10).map(item)));
  return [element("dl", { class: "facts" }, pairs.slice(0, 10).map(item)), more];
}

function droppedOf(end) {
  return Object.entries(end.dropped).map(([why, count]) => `${count} ${why}`).join(", ");
}

function troubles(row, detail) {
  const lines = [];
  if (!detail.end) lines.push("This file has no end: it was cut or is still being written. The page shows what it contains.");
  if (row.problem) lines.push(`This trajectory does not replay: ${row.problem}`);
  if (detail.end && detail.end.error) lines.push(`It ended with an error: ${detail.end.error}`);
  return lines.map((text) => element("p", { class: "problems", role: "note", text: `⚠ ${text}` }));
}

function goldLine({ gold }) {
  if (!gold) return null;
  const missing = gold.missing.length ? ` Never shown: ${gold.missing.join(", ")}.` : "";
  return element("p", {}, element("span", { class: "badge goldmark", text: "★ gold" }),
    ` ${gold.seen} of ${gold.needs} seen, ${gold.ranked} of ${gold.needs} in the ranking.${plain(missing)}`,
    gold.answer ? element("span", {}, " Answer: ", element("b", { dir: "auto", text: gold.answer })) : null);
}

/** Return the strips of all turns, each in a button. */
function turnMap(detail, contexts, scale, choose) {
  const { budget } = detail.header;
  const rows = contexts.map((context, at) => {
    const summary = summaryOf(detail.turns[at]);
    const label = `Turn ${context.turn + 1}: ${summary}; ${number(context.used)} tokens in view, ${tierOf(context.used, budget)}`;
    const strip = thinStrip(context, budget, scale);
    const button = element("button", { type: "button", class: "turnrow", "aria-label": label, title: label, on: { click: () => choose(at) } },
      element("span", { class: "turnnumber", text: context.turn + 1 }), strip, element("span", { class: "turnsummary", text: summary }));
    return element("li", {}, button);
  });
  const list = element("ol", { class: rows.length > 24 ? "turnmap dense" : "turnmap", "aria-label": "Turns" }, rows);
  const mark = (at) => {
    const old = list.querySelector("[aria-current]");
    if (old) old.removeAttribute("aria-current");
    if (!rows[at]) return;
    rows[at].firstChild.setAttribute("aria-current", "true");
    const [top, bottom] = [rows[at].offsetTop, rows[at].offsetTop + rows[at].offsetHeight];
    if (top < list.scrollTop || bottom > list.scrollTop + list.clientHeight) list.scrollTop = top - list.clientHeight / 2;
  };
  const head = element("h3", { text: `Context, turn by turn` });
  const empty = element("p", { class: "muted", text: "No turn was recorded." });
  return { node: element("section", {}, head, rows.length ? [axis(budget, scale), list, legend(Boolean(detail.gold))] : empty), mark };
}

function openTurn(store, detail, contexts, at, scale, onTurn, zoom) {
  const context = contexts[at];
  const turn = detail.turns[at];
  const shown = element("div", { class: "segmentshown", "aria-live": "polite" });
  const choose = async (position, button) => {
    for (const pressed of strip.querySelectorAll("[aria-pressed=true]")) pressed.removeAttribute("aria-pressed");
    button.setAttribute("aria-pressed", "true");
    shown.replaceChildren(await segmentShown(store, detail, position.segment, context.turn));
  };
  const strip = largeStrip(context, detail.header.budget, scale, choose);
  const step = (text, to, name) => element("button", { type: "button", text, "aria-label": name, disabled: !contexts[to], on: { click: () => onTurn(to) } });
  const everything = element("button", { type: "button", text: "Open all passages", on: { click: () => {
    for (const one of panel.querySelectorAll("details.passage")) one.open = true;
  } } });
  const panel = turnPanel(store, detail, turn, context);
  return [
    element("div", { class: "turnhead" },
      element("h3", { "aria-live": "polite", text: `Turn ${context.turn + 1} of ${contexts.length}` }),
      step("←", at - 1, "Previous turn"), step("→", at + 1, "Next turn"), zoom, everything),
    strip, shown, panel,
  ];
}

async function segmentShown(store, detail, one, turn) {
  if (one.block) return blockItem(store, detail, one.block, -1, true);
  const text = typeof one.text === "number" ? await store.text(one.text) : one.text || "";
  return element("div", {},
    element("p", { class: "muted", text: `${KINDS[one.kind].name}${one.turn < 0 ? "" : ` of turn ${one.turn + 1}`}, ${counted(one.tokens, "token")}` }),
    element("pre", { class: "text", dir: "auto", text: text.trim() }));
}

function rankingOf(store, { end, gold }) {
  if (!end) return null;
  const items = end.documents.map((document) => element("li", {}, rankedItem(store, document)));
  const dropped = droppedOf(end);
  return element("section", { class: "ranking" },
    element("h3", { text: `Final ranking, ${counted(items.length, "document")}` }),
    dropped ? element("p", { class: "warn", text: `⚠ Ids dropped from the ranking: ${dropped}.` }) : null,
    gold && gold.ranked < gold.needs ? element("p", { class: "muted", text: `${gold.needs - gold.ranked} of ${gold.needs} gold items are not in it.` }) : null,
    items.length ? element("ol", {}, items) : element("p", { class: "muted", text: "No document was ranked." }));
}

function rankedItem(store, document) {
  const passages = document.chunks.map((chunk) => passage([element("code", { class: "muted", text: chunk.id })], () => store.text(chunk.text), true));
  const inner = element("div", { class: "inner" });
  const made = element("details", {},
    element("summary", {},
      element("span", { class: "title", dir: "auto", text: document.title || document.id }), " ",
      element("code", { class: "muted", text: document.id }), " ", goldMark(document.gold),
      document.score === null ? null : element("span", { class: "muted", text: ` ${score(document.score)}` })),
    inner);
  made.addEventListener("toggle", () => inner.replaceChildren(...passages), { once: true });
  return [made, document.justification ? element("p", { class: "why", dir: "auto", text: document.justification }) : null];
}

function beginnings(store, detail) {
  const parts = detail.prompt.map((part) => passage([`${part.role}, ${counted(part.tokens, "token")}`], () => store.text(part.text)));
  return element("section", {}, element("h3", { text: "First view of the policy" }), parts);
}
