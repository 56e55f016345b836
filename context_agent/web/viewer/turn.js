// One turn: the policy's text, its calls with their results, the cost of its edit.
"use strict";

const number = (value) => Number(value).toLocaleString("en");
const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

function seconds(value) {
  if (value === null || value === undefined) return "";
  return value < 1 ? `${(value * 1000).toPrecision(2) * 1} ms` : `${value.toPrecision(3) * 1} s`;
}

function percent(share) {
  return share === null || share === undefined ? "" : `${Math.round(share * 100)} %`;
}

/** Return a score with three digits. Small scores are powers of ten. */
function score(value) {
  return Math.abs(value) < 0.001 && value !== 0 ? value.toExponential(1) : value.toPrecision(3);
}

/** Return a text that is unpacked when the reader opens it. */
function passage(summary, load, open = false) {
  const body = element("pre", { class: "text", dir: "auto" });
  const made = element("details", { class: "passage" }, element("summary", {}, summary), body);
  let loaded = false;
  made.addEventListener("toggle", async () => {
    if (!made.open || loaded) return;
    loaded = true;
    body.textContent = plain(await load());
  });
  made.open = open;
  return made;
}

function goldMark(is) {
  return is ? element("span", { class: "badge goldmark", text: "★ gold" }) : null;
}

function turnPanel(store, detail, turn, context) {
  const { budget } = detail.header;
  const past = tierOf(context.used, budget);
  const filled = `${number(context.used)} of ${number(budget.window)} tokens in view, ${past}`;
  return element("section", { class: "turn", "aria-label": `Turn ${turn.turn + 1}` },
    element("p", { class: "muted" }, `${filled} (soft ${number(budget.soft)}, hard ${number(budget.hard)}). `,
      `The action took ${counted(turn.tokens, "token")}${turn.seconds ? ` and ${seconds(turn.seconds)}` : ""}.`),
    turn.shown ? null : element("p", { class: "bad", text: "⚠ The action did not fit the window and ended the episode." }),
    written("Reasoning", turn.reasoning),
    written(turn.results.length ? "Text" : "Final message", turn.text),
    turn.edit ? billOf(store, detail, turn.edit) : null,
    turn.results.length ? element("ol", { class: "calls" }, turn.results.map((result) => callItem(store, detail, result, turn.turn))) : null,
  );
}

function written(title, text) {
  if (!text) return null;
  const body = element("pre", { class: "text", dir: "auto", text });
  const made = element("details", { class: "written" }, element("summary", { text: `${title}, ${counted(text.length, "character")}` }), body);
  made.open = text.length < 1200;
  return made;
}

function callItem(store, detail, result, turn) {
  const blocks = new Map(detail.blocks.map((block) => [block.key, block]));
  const brought = result.segments.filter((part) => typeof part === "number").map((key) => blocks.get(key)).filter(Boolean);
  const said = result.segments.filter((part) => typeof part !== "number");
  return element("li", { class: result.mistake ? "call mistaken" : "call" },
    element("div", { class: "callhead" },
      element("b", { text: result.name }), " ",
      result.arguments.map(([name, value]) => element("span", { class: "argument" }, element("i", { text: name }), " ", element("code", { dir: "auto", text: value }), " ")),
      result.mistake ? element("span", { class: "badge bad", text: `⚠ mistake: ${result.mistake.replaceAll("_", " ")}` }) : null,
      element("span", { class: "muted", text: [EDITS.has(result.name) ? "" : brought.length ? counted(brought.length, "passage") : "nothing new", result.seconds ? seconds(result.seconds) : ""].filter(Boolean).join(", ") }),
    ),
    brought.length ? element("ul", { class: "blocks" }, brought.map((block) => element("li", {}, blockItem(store, detail, block, turn)))) : null,
    said.map((part) => element("pre", { class: "said muted", dir: "auto", text: part.text.trim() })),
  );
}

/** Return a block as a line that opens to its text, with a badge for each event after the displayed turn. */
function blockItem(store, detail, block, turn, open = false) {
  const later = fateOf(detail, block.key).filter((event) => event.turn > turn || event.turn !== block.turn);
  if (block.source === "summary") return passage(summaryLine(block, later), () => store.text(block.text), open);
  const scores = [["rank", block.rank], ["dense", block.dense], ["BM25", block.sparse]]
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => `${name} ${name === "rank" ? value : score(value)}`);
  const summary = [
    element("span", { class: "title", dir: "auto", text: block.title || block.document }), " ",
    element("code", { class: "muted", text: block.chunk }), " ",
    goldMark(block.gold),
    fateBadges(later),
    block.whole ? null : element("span", { class: "badge", text: "cut to fit" }),
    element("span", { class: "muted", text: ` ${counted(block.tokens, "token")} · ${scores.join(" · ")}` }),
  ];
  return passage(summary, () => store.text(block.text), open);
}

function fateBadges(later) {
  return later.map((event) => element("span", { class: `badge ${event.what}`, text: `${event.what} in turn ${event.turn + 1}` }));
}

function summaryLine(block, later) {
  return [
    element("span", { class: "title", text: block.title }), " ",
    element("code", { class: "muted", text: block.chunk }), " ",
    fateBadges(later),
    element("span", { class: "muted", text: ` ${counted(block.tokens, "token")}` }),
  ];
}

function billOf(store, detail, edit) {
  const blocks = new Map(detail.blocks.map((block) => [block.key, block]));
  const listed = (keys, verb) => keys.length && passageList(`${verb} ${counted(keys.length, "passage")}`, keys.map((key) => blocks.get(key)).filter(Boolean));
  const freed = edit.freed < 0 ? `${number(-edit.freed)} tokens more in view` : `${number(edit.freed)} tokens freed`;
  return element("div", { class: "bill" },
    element("p", {}, element("b", { text: "Edit: " }), `${freed}; ${number(edit.recomputed)} tokens behind the first change lose their cached prefix.`),
    listed(edit.pruned, "Pruned") || null,
    listed(edit.replaced, "Summarized") || null,
    edit.summaries.map((key) => blockItem(store, detail, blocks.get(key), blocks.get(key).turn, true)),
    listed(edit.restored, "Restored") || null,
  );
}

function passageList(title, blocks) {
  const gold = blocks.filter((block) => block.gold).length;
  const items = blocks.map((block) => element("li", {}, element("span", { dir: "auto", text: block.title || block.document }), " ", element("code", { class: "muted", text: block.chunk }), " ", goldMark(block.gold)));
  return element("details", {}, element("summary", {}, title, " ", gold ? element("span", { class: "badge goldmark", text: `★ ${gold} gold` }) : null), element("ul", { class: "names" }, items));
}
