// The context drawn as strips: a thin one for every turn, and a large one, block by block, for the turn that is open.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const [STRIP_WIDTH, STRIP_HEIGHT, RESTORED_TO, GOLD_FROM, GOLD_TO] = [1000, 10, 2.5, 10.5, 13];

/** The share of the strip from which on a segment has room for its letter. */
const LEGIBLE = 0.015;

/** The number of segments from which on a thin strip leaves next to no gaps between them. */
const FINE = 60;

function drawn(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}

/** A thin strip: one path a kind, however many segments there are. */
function thinStrip(context, budget, scale) {
  const paths = new Map();
  const add = (name, from, width, top, bottom) => {
    const box = `M${(from * STRIP_WIDTH).toFixed(2)} ${top}h${(width * STRIP_WIDTH).toFixed(2)}V${bottom}h${(-width * STRIP_WIDTH).toFixed(2)}z`;
    paths.set(name, (paths.get(name) || "") + box);
  };
  for (const { segment: one, from, width, leaving } of place(context, scale)) {
    add(leaving ? `leaving ${one.kind}` : one.kind, from, width, 0, STRIP_HEIGHT);
    if (one.block && context.restored.has(one.block.key)) add("restored", from, width, 0, RESTORED_TO);
    if (one.block && one.block.gold) add("gold", from, width, GOLD_FROM, GOLD_TO);
  }
  const made = drawn("svg", { class: context.segments.length > FINE ? "thin fine" : "thin", viewBox: `0 0 ${STRIP_WIDTH} ${GOLD_TO}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  for (const [name, path] of paths) made.append(drawn("path", { class: name, d: path }));
  for (const line of thresholds(budget, scale)) {
    const at = Math.min(line.at * STRIP_WIDTH, STRIP_WIDTH - 0.5);
    made.append(drawn("line", { class: `threshold ${line.name}`, x1: at, x2: at, y1: 0, y2: GOLD_TO }));
  }
  return made;
}

/** The names of the thresholds above the strips. */
function axis(budget, scale) {
  const lines = thresholds(budget, scale);
  const labels = lines.map((line) => {
    const label = element("span", { class: `mark ${line.name}`, text: `${line.name} ${line.tokens.toLocaleString("en")}` });
    label.style.right = `${(1 - line.at) * 100}%`;
    return label;
  });
  if (lines.length < 3) labels.push(element("span", { class: "mark scale", text: `${scale.toLocaleString("en")} tokens across; window ${budget.window.toLocaleString("en")}` }));
  return element("div", { class: "axis", "aria-hidden": "true" }, labels);
}

/** The large strip: a button a segment. `choose(placed)` is called with what was pressed. */
function largeStrip(context, budget, scale, choose) {
  const buttons = place(context, scale).map((placed) => segmentButton(placed, context, choose));
  if (buttons.length) buttons[0].tabIndex = 0;
  const lines = thresholds(budget, scale).map((line) => {
    const made = element("span", { class: `threshold ${line.name}`, "aria-hidden": "true" });
    made.style.left = `${line.at * 100}%`;
    return made;
  });
  const strip = element("div", { class: "strip", role: "toolbar", "aria-label": `Context after turn ${context.turn + 1}` }, buttons, lines);
  strip.addEventListener("keydown", (event) => moveAlong(event, buttons));
  return strip;
}

function segmentButton(placed, context, choose) {
  const { segment: one, leaving } = placed;
  const { block } = one;
  const back = block && context.restored.has(block.key);
  const classes = ["segment", one.kind, leaving && "leaving", back && "restored", block && block.gold && "gold"];
  const made = element("button", {
    type: "button",
    class: classes.filter(Boolean).join(" "),
    tabindex: -1,
    "aria-label": segmentLabel(placed, back),
    title: segmentLabel(placed, back),
    text: placed.width < LEGIBLE ? "" : `${block && block.gold ? "★" : ""}${KINDS[one.kind].letter}`,
    data: block ? { key: block.key, state: leaving ? "leaving" : back ? "restored" : "in view" } : {},
    on: { click: () => choose(placed, made) },
  });
  made.style.left = `${placed.from * 100}%`;
  made.style.width = `${placed.width * 100}%`;
  return made;
}

function segmentLabel({ segment: one, leaving }, back) {
  const state = leaving ? ", taken out in this turn" : back ? ", restored in this turn" : "";
  if (!one.block) return `${KINDS[one.kind].name}, ${one.tokens} tokens`;
  const gold = one.block.gold ? ", gold" : "";
  return `${one.block.title || one.block.document} (${one.block.chunk}): ${one.kind} in turn ${one.turn + 1}, ${one.tokens} tokens${gold}${state}`;
}

/** Left, right, Home and End go from segment to segment; the strip is one stop of the tab key. */
function moveAlong(event, buttons) {
  const at = buttons.indexOf(document.activeElement);
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: buttons.length - 1 }[event.key];
  if (to === undefined || at < 0) return;
  event.preventDefault();
  event.stopPropagation();
  if (!buttons[to]) return;
  buttons[at].tabIndex = -1;
  buttons[to].tabIndex = 0;
  buttons[to].focus();
}

/** What the colours and letters stand for. */
function legend(gold) {
  const entries = Object.entries(KINDS).map(([kind, { letter, name }]) =>
    element("li", {}, element("span", { class: `segment ${kind}`, "aria-hidden": "true", text: letter }), ` ${name}`),
  );
  entries.push(element("li", {}, element("span", { class: "segment search leaving", "aria-hidden": "true", text: "S" }), " pruned or summarised in this turn"));
  entries.push(element("li", {}, element("span", { class: "segment search restored", "aria-hidden": "true", text: "S" }), " restored in this turn"));
  if (gold) entries.push(element("li", {}, element("span", { class: "segment search gold", "aria-hidden": "true", text: "★" }), " gold"));
  return element("ul", { class: "legend", "aria-label": "Legend" }, entries);
}
